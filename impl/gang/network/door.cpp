#include "gang/network/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace gangway::network {
namespace {

constexpr size_t kStrangers = 64;  // the most connections that have proved nothing; more for large gangs
constexpr int kAtOnce = 16;        // how many connections one call accepts
constexpr int64_t kRefusedPauseMs = 50;  // after a connection that cannot be accepted

}  // namespace

void Door::add_polls(std::vector<pollfd>& fds) const {
  fds.push_back({next_accept_.passed() ? listener_.socket.get() : -1, POLLIN, 0});
  for (const Stranger& one : strangers_) fds.push_back({one.socket.get(), POLLIN, 0});
}

std::vector<Opened> Door::serve() {
  accept_some();
  std::vector<Opened> opened;
  for (Stranger& one : strangers_) {
    if (serve(one))
      opened.push_back({static_cast<int>(one.hello.rank), one.purpose, std::move(one.socket),
                        one.transcript->to_client_key(), one.transcript->to_server_key()});
    if (one.deadline.passed()) one.is_over = true;
  }
  strangers_.remove_if([](const Stranger& one) { return one.is_over; });
  return opened;
}

void Door::close() {
  listener_.socket.reset();
  strangers_.clear();
}

// A connection that cannot be accepted, since the process has no descriptors left, stays in the socket's
// queue. Without a pause it would wake the thread at once, again and again.
void Door::accept_some() {
  if (!next_accept_.passed()) return;
  const size_t most = std::max(kStrangers, 4 * static_cast<size_t>(contacts_->options.size));
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor fd(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno != EAGAIN) next_accept_ = Deadline::after_ms(kRefusedPauseMs);
      return;
    }
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (strangers_.size() >= most) strangers_.pop_front();
    strangers_.emplace_back().socket = std::move(fd);
  }
}

bool Door::serve(Stranger& one) const {
  const size_t due = one.transcript == nullptr ? kGreetingBytes : kProofBytes;
  const ssize_t n = recv(one.socket.get(), one.bytes.data() + one.have, due - one.have, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    one.is_over = true;
    return false;
  }
  one.have += static_cast<size_t>(n);
  if (one.have < due) return false;
  one.have = 0;
  if (one.transcript == nullptr) {
    answer(one);
    return false;
  }
  one.is_over = true;
  return proves(one) && send(one.socket.get(), &kIsOpen, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

void Door::answer(Stranger& one) const {
  const int own = contacts_->options.rank;
  one.is_over = true;
  one.purpose = static_cast<Purpose>(one.bytes[0]);
  const bool is_known = one.purpose == Purpose::control || one.purpose == Purpose::data;
  const std::span<const uint8_t, kHelloBytes> greeting(one.bytes.data() + 1, kHelloBytes);
  if (!is_known || !decode_hello(greeting, one.hello)) return;
  const int peer = static_cast<int>(one.hello.rank);
  if (peer < 0 || peer >= own || one.hello.size != static_cast<uint32_t>(contacts_->options.size)) return;
  std::array<uint8_t, 32> nonce{};
  random_bytes(nonce);
  one.transcript =
      std::make_unique<Transcript>(contacts_->key, contacts_->terms(one.purpose, peer, own), greeting, nonce);
  const std::string reply =
      std::string(as_text(nonce)) + std::string(as_text(one.transcript->server_proof()));
  const ssize_t sent = send(one.socket.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  one.is_over = sent != static_cast<ssize_t>(reply.size());
}

bool Door::proves(const Stranger& one) const {
  const std::span<const uint8_t, kProofBytes> proof(one.bytes.data(), kProofBytes);
  return same_digest(proof, one.transcript->client_proof()) &&
         one.hello.process == contacts_->of(static_cast<int>(one.hello.rank)).process;
}

}  // namespace gangway::network
