#include "gang/rendezvous/resolve.h"

#include <netdb.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "gang/rendezvous/store_common.h"

namespace gangway {
namespace {

constexpr int64_t kNapMs = 50;  // the longest time between two calls of the interrupt hook

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

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::string host_and_port(const std::string& host, int port) {
  const std::string plain = without_brackets(host);
  return plain.find(':') == std::string::npos ? text(plain, ":", port) : text("[", plain, "]:", port);
}

}  // namespace gangway
