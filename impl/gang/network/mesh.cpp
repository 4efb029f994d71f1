#include "gang/network/mesh.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/interrupt.h"
#include "base/library_build.h"
#include "gang/rendezvous/handshake.h"
#include "gang/rendezvous/resolve.h"
#include "gang/rendezvous/store_common.h"
#include "gang/rendezvous/store_socket.h"

namespace gangway::network {
namespace {

enum class Purpose : uint8_t { control = 1, data = 2 };

constexpr int64_t kStrangerMs = 5'000;  // the longest time that a handshake may take
constexpr int64_t kLookMs = 300;        // how often a waiting rank looks whether another has failed
constexpr int64_t kNapMs = 50;
constexpr size_t kStrangers = 64;  // the most connections that have proved nothing; more for large gangs
constexpr size_t kGreetingBytes = 1 + kHelloBytes;

// What both proofs of a connection cover besides the hello and the nonce.
std::string terms(const Meeting& meeting, const EngineOptions& options, Purpose purpose, int lower,
                  int higher) {
  const auto& places = meeting.places();
  return text("network/", purpose == Purpose::control ? "control" : "data", "/", lower, "/", higher, "/",
              places[static_cast<size_t>(lower)].process, "/", places[static_cast<size_t>(higher)].process,
              "/", meeting.attempt(), "/", library_build(), "/", options.size, "/", options.liveness_ms);
}

// The two connections of one peer, while they are made.
struct Pair {
  Descriptor control, data;
  std::optional<Secret> to_lower, to_higher;
  bool is_whole() const { return control && data; }
};

class Mesh {
 public:
  Mesh(Meeting& meeting, const EngineOptions& options)
      : meeting_(meeting),
        options_(options),
        key_(meeting.pair_key()),
        listener_(meeting.take_listener()),
        pairs_(static_cast<size_t>(options.size)) {}

  std::list<Link> connect() {
    for (int r = options_.rank + 1; r < options_.size; ++r)
      for (const Purpose purpose : {Purpose::control, Purpose::data}) open(r, purpose);
    while (!has_all()) accept_for(kNapMs);
    std::list<Link> links;
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      Pair& pair = pairs_[static_cast<size_t>(r)];
      const bool is_lower = options_.rank < r;
      watch_host(pair.control.get(), options_.liveness_ms);
      links.emplace_back(r, std::move(pair.control), std::move(pair.data),
                         is_lower ? *pair.to_higher : *pair.to_lower,
                         is_lower ? *pair.to_lower : *pair.to_higher);
    }
    return links;
  }

 private:
  // A connection that has come, until its peer has proved that it is one.
  struct Stranger {
    Descriptor socket;
    Deadline deadline = Deadline::after_ms(kStrangerMs);
    std::array<uint8_t, kGreetingBytes> bytes{};
    size_t have = 0;
    Hello hello;
    Purpose purpose = Purpose::control;
    std::unique_ptr<Transcript> transcript;
    bool is_over = false;
  };

  bool has_all() const {
    for (int r = 0; r < options_.rank; ++r)
      if (!pairs_[static_cast<size_t>(r)].is_whole()) return false;
    return true;
  }

  // --- the lower rank opens a connection ---
  void open(int peer, Purpose purpose) {
    StoreBackoff backoff(meeting_.deadline());
    std::string why;
    do {
      accept_for(0);  // lower ranks may be waiting for this one
      if (try_to_open(peer, purpose, why)) return;
      look();
    } while (backoff.pause());
    fail(Code::timeout, "gang.create: rank ", options_.rank, " could not connect to ", place(peer), " in ",
         options_.timeout_ms, " ms: ", why);
  }

  std::string place(int peer) const {
    return text(meeting_.name_of(peer), " at ",
                host_and_port(meeting_.address_of(peer), meeting_.places()[static_cast<size_t>(peer)].port));
  }

  bool try_to_open(int peer, Purpose purpose, std::string& why) {
    int reason = 0;
    const int port = meeting_.places()[static_cast<size_t>(peer)].port;
    Descriptor socket =
        dial(meeting_.address_of(peer), port, Deadline::after_ms(meeting_.deadline().left_ms(2000)), reason);
    if (!socket) {
      why = strerror(reason);
      if (reason == ECONNREFUSED)
        lost(peer, "refuses connections: it has died, or a firewall is between the hosts");
      return false;
    }
    Hello hello;
    hello.rank = static_cast<uint32_t>(options_.rank);
    hello.size = static_cast<uint32_t>(options_.size);
    hello.process = meeting_.places()[static_cast<size_t>(options_.rank)].process;
    random_bytes(hello.nonce);
    const auto greeting = encode_hello(hello);
    const Deadline deadline = Deadline::after_ms(meeting_.deadline().left_ms(kStrangerMs));
    std::array<uint8_t, kAnswerBytes> answer{};
    why = "the handshake did not end";
    const std::string first = std::string(1, static_cast<char>(purpose)) + std::string(as_text(greeting));
    if (!send_all(socket.get(), first, deadline) || !receive_all(socket.get(), answer, deadline))
      return false;
    const std::span<const uint8_t, kAnswerBytes> bytes(answer);
    const Transcript transcript(key_, terms(meeting_, options_, purpose, options_.rank, peer), greeting,
                                bytes.first<32>());
    if (!same_digest(bytes.last<32>(), transcript.server_proof()))
      fail(Code::gang, "gang.create: what listens for ", place(peer), " does not know this gang's secret");
    if (!send_all(socket.get(), as_text(transcript.client_proof()), deadline)) return false;
    take(peer, purpose, std::move(socket), transcript);
    return true;
  }

  bool send_all(int fd, std::string_view bytes, Deadline deadline) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0)
        bytes.remove_prefix(static_cast<size_t>(n));
      else if ((errno != EINTR && errno != EAGAIN) || !wait_ready(fd, POLLOUT, deadline))
        return false;
    }
    return true;
  }
  // Ranks that wait for this one are served meanwhile, as the peer may wait for them.
  bool receive_all(int fd, std::span<uint8_t> bytes, Deadline deadline) {
    while (!bytes.empty()) {
      const ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
      if (n > 0) {
        bytes = bytes.subspan(static_cast<size_t>(n));
        continue;
      }
      if (n == 0 || (errno != EINTR && errno != EAGAIN) || deadline.passed()) return false;
      accept_for(kNapMs, fd);
    }
    return true;
  }

  // --- the higher rank accepts one ---
  // Serves those who connect, until something has come or the time is over. `other` may wake it, too.
  void accept_for(int64_t ms, int other = -1) {
    std::vector<pollfd> fds{{other, POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
    for (const Stranger& one : strangers_) fds.push_back({one.socket.get(), POLLIN, 0});
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(ms));
    if (ready < 0 && errno != EINTR) fail_system(Code::io, "gang.create: poll failed", errno);
    size_t at = 2;
    for (Stranger& one : strangers_) {
      const short events = fds[at++].revents;
      if (ready > 0 && events != 0) serve(one);
      if (one.deadline.passed()) one.is_over = true;
    }
    strangers_.remove_if([](const Stranger& one) { return one.is_over; });
    if (ready > 0 && fds[1].revents != 0) accept_some();
    poll_interrupt();
    if (ms != 0) look();
  }

  void accept_some() {
    const size_t most = std::max(kStrangers, 4 * static_cast<size_t>(options_.size));
    for (int i = 0; i < 16; ++i) {
      Descriptor fd(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) return;
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (strangers_.size() >= most) strangers_.pop_front();
      strangers_.emplace_back().socket = std::move(fd);
    }
  }

  void serve(Stranger& one) {
    const size_t due = one.transcript == nullptr ? kGreetingBytes : kProofBytes;
    const ssize_t n = recv(one.socket.get(), one.bytes.data() + one.have, due - one.have, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      one.is_over = true;
      return;
    }
    one.have += static_cast<size_t>(n);
    if (one.have < due) return;
    one.have = 0;
    if (one.transcript == nullptr)
      answer(one);
    else
      finish(one);
  }

  void answer(Stranger& one) {
    one.is_over = true;
    one.purpose = static_cast<Purpose>(one.bytes[0]);
    const bool is_known = one.bytes[0] == static_cast<uint8_t>(Purpose::control) ||
                          one.bytes[0] == static_cast<uint8_t>(Purpose::data);
    const std::span<const uint8_t, kHelloBytes> greeting(one.bytes.data() + 1, kHelloBytes);
    if (!is_known || !decode_hello(greeting, one.hello)) return;
    const int peer = static_cast<int>(one.hello.rank);
    if (peer >= options_.rank || one.hello.size != static_cast<uint32_t>(options_.size)) return;
    std::array<uint8_t, 32> nonce{};
    random_bytes(nonce);
    one.transcript = std::make_unique<Transcript>(
        key_, terms(meeting_, options_, one.purpose, peer, options_.rank), greeting, nonce);
    const std::string reply =
        std::string(as_text(nonce)) + std::string(as_text(one.transcript->server_proof()));
    const ssize_t sent = send(one.socket.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    one.is_over = sent != static_cast<ssize_t>(reply.size());
  }

  void finish(Stranger& one) {
    one.is_over = true;
    const std::span<const uint8_t, kProofBytes> proof(one.bytes.data(), kProofBytes);
    if (!same_digest(proof, one.transcript->client_proof())) return;
    const int peer = static_cast<int>(one.hello.rank);
    if (one.hello.process != meeting_.places()[static_cast<size_t>(peer)].process) return;
    take(peer, one.purpose, std::move(one.socket), *one.transcript);
  }

  // --- both ---
  void take(int peer, Purpose purpose, Descriptor socket, const Transcript& transcript) {
    Pair& pair = pairs_[static_cast<size_t>(peer)];
    Descriptor& place = purpose == Purpose::control ? pair.control : pair.data;
    place = std::move(socket);
    if (purpose != Purpose::control) return;
    pair.to_higher = transcript.to_server_key();
    pair.to_lower = transcript.to_client_key();
  }

  // Looks now and then whether the others go on.
  void look() {
    if (!next_look_.passed()) return;
    next_look_ = Deadline::after_ms(kLookMs);
    if (meeting_.deadline().passed()) {
      std::string missing;
      for (int r = 0; r < options_.rank; ++r)
        if (!pairs_[static_cast<size_t>(r)].is_whole())
          missing += text(missing.empty() ? "" : ", ", meeting_.name_of(r));
      fail(Code::timeout, "gang.create: rank ", options_.rank, " waited ", options_.timeout_ms,
           " ms for a connection from ", missing.empty() ? "its peers" : missing,
           "; do they reach its address, and is no firewall between them?");
    }
    meeting_.check();
  }

  [[noreturn]] void lost(int peer, const char* why) const {
    Error error(Code::peer_lost, text("gang.create: ", place(peer), " ", why));
    error.peer = peer;
    error.rank = options_.rank;
    throw std::move(error);
  }

  Meeting& meeting_;
  const EngineOptions& options_;
  const Secret key_;
  Listener listener_;
  std::vector<Pair> pairs_;
  std::list<Stranger> strangers_;
  Deadline next_look_ = Deadline::after_ms(kLookMs);
};

}  // namespace

std::list<Link> connect_all(Meeting& meeting, const EngineOptions& options) {
  return Mesh(meeting, options).connect();
}

}  // namespace gangway::network
