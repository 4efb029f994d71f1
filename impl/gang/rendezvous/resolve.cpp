#include "gang/rendezvous/resolve.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/store_common.h"

namespace gangway {
namespace {

// One question to the name service. getaddrinfo has no deadline of its own: a name server that does not
// answer blocks it for minutes. So it runs on a thread, which keeps the question alive if the asking rank
// gives up.
struct Question {
  std::string host, port;
  addrinfo hints{};
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  int answer = 0;
  addrinfo* found = nullptr;

  ~Question() {
    if (found != nullptr) freeaddrinfo(found);
  }
};

void ask_name_service(const std::shared_ptr<Question>& question) {
  addrinfo* found = nullptr;
  const int answer = getaddrinfo(question->host.c_str(), question->port.c_str(), &question->hints, &found);
  const std::lock_guard lock(question->mutex);
  question->answer = answer;
  question->found = answer == 0 ? found : nullptr;
  question->done = true;
  question->answered.notify_all();
}

void start_to_ask(const std::shared_ptr<Question>& question) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signal handlers run on its own threads
  try {
    std::thread(ask_name_service, question).detach();
  } catch (const std::exception& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(Code::io, "store: no thread to look up the host \"", question->host, "\": ", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Returns whether the answer came before the deadline.
bool wait_for_answer(Question& question, Deadline deadline) {
  for (;;) {
    {
      std::unique_lock lock(question.mutex);
      question.answered.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(kNapMs) + 1),
                                 [&] { return question.done; });
      if (question.done) return true;
    }
    if (deadline.passed()) return false;
    poll_interrupt();  // without the mutex, because the hook may take long
  }
}

std::shared_ptr<Question> make_question(const std::string& host, int port, bool listening) {
  auto question = std::make_shared<Question>();
  question->host = without_brackets(host);
  question->port = std::to_string(port);
  question->hints.ai_socktype = SOCK_STREAM;
  question->hints.ai_flags = AI_NUMERICSERV | (listening ? AI_PASSIVE : 0);
  return question;
}

// An address that is written as a number needs no name service, and no thread.
bool answer_number(Question& question) {
  addrinfo hints = question.hints;
  hints.ai_flags |= AI_NUMERICHOST;
  return getaddrinfo(question.host.c_str(), question.port.c_str(), &hints, &question.found) == 0;
}

std::vector<SocketAddress> addresses_in(const addrinfo* found) {
  std::vector<SocketAddress> out;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    address.size = one->ai_addrlen;
    std::memcpy(&address.bytes, one->ai_addr, std::min<size_t>(one->ai_addrlen, sizeof address.bytes));
    out.push_back(address);
  }
  return out;
}

}  // namespace

std::vector<SocketAddress> resolve(const std::string& host, int port, bool listening, Deadline deadline) {
  StoreBackoff backoff(deadline);
  std::string why = "the name service did not answer";
  do {
    const auto question = make_question(host, port, listening);
    if (answer_number(*question)) return addresses_in(question->found);
    question->found = nullptr;
    start_to_ask(question);
    if (!wait_for_answer(*question, deadline)) break;
    if (question->answer == 0) return addresses_in(question->found);
    why = gai_strerror(question->answer);
    if (question->answer != EAI_AGAIN) fail(Code::io, "store: the host \"", host, "\" is not known: ", why);
  } while (backoff.pause());
  fail(Code::timeout, "store: the address of the host \"", host, "\" was not found in time: ", why);
}

std::string number_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view all = text;
  const bool is_mapped = all.starts_with(kMapped) && all.find('.') != std::string_view::npos;
  return std::string(is_mapped ? all.substr(kMapped.size()) : all);
}

namespace {

using GetName = int (*)(int, sockaddr*, socklen_t*);

SocketAddress end_of(int fd, GetName get_name) {
  SocketAddress end;
  end.size = sizeof end.bytes;
  if (get_name(fd, reinterpret_cast<sockaddr*>(&end.bytes), &end.size) != 0) end.bytes.ss_family = AF_UNSPEC;
  return end;
}

// Returns the number of the first interface's address that `fits`, IPv4 before IPv6; "" if there is none. An
// address of one link (fe80::) means nothing without its interface, so it is left out.
template <typename Fits>
std::string first_number(Fits&& fits) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || !fits(*one)) continue;
      const std::string number = number_of(one->ifa_addr);
      if (!number.starts_with("fe80:")) return number;
    }
  return "";
}

}  // namespace

std::string local_number(int fd) { return number_of(end_of(fd, getsockname).get()); }

std::string peer_number(int fd) { return number_of(end_of(fd, getpeername).get()); }

int local_port(int fd) {
  const SocketAddress own = end_of(fd, getsockname);
  if (own.bytes.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&own.bytes)->sin6_port);
  return own.bytes.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in*>(&own.bytes)->sin_port)
                                        : 0;
}

bool is_loopback_number(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

bool is_loopback(const SocketAddress& address) { return is_loopback_number(number_of(address.get())); }

std::vector<SocketAddress> every_address(int port, Deadline deadline) {
  std::vector<SocketAddress> all;
  for (const char* const every : {"::", "0.0.0.0"})
    for (const SocketAddress& one : resolve(every, port, true, deadline)) all.push_back(one);
  return all;
}

std::string first_address() {
  return first_number([](const ifaddrs& one) {
    return (one.ifa_flags & IFF_UP) != 0 && (one.ifa_flags & IFF_LOOPBACK) == 0;
  });
}

int free_port(const std::string& address) {
  int reason = EADDRNOTAVAIL;
  for (const SocketAddress& one : resolve(address, 0, true, Deadline::after_ms(1000))) {
    const Descriptor fd(socket(one.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && bind(fd.get(), one.get(), one.size) == 0) return local_port(fd.get());
    reason = errno;
  }
  fail_system(Code::io, text("store: no port of ", address, " can be used"), reason);
}

std::string interface_address(const std::string& setting) {
  if (if_nametoindex(setting.c_str()) == 0) return without_brackets(setting);
  const std::string number = first_number([&](const ifaddrs& one) { return setting == one.ifa_name; });
  if (!number.empty()) return number;
  fail(Code::invalid_argument, "GANGWAY_INTERFACE: the interface ", setting,
       " has no address that other hosts can use");
}

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::string host_and_port(const std::string& host, int port) {
  const std::string plain = without_brackets(host);
  return plain.find(':') == std::string::npos ? text(plain, ":", port) : text("[", plain, "]:", port);
}

}  // namespace gangway
