#include "gang/network/dial.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "gang/network/sockets.h"

namespace gangway::network {
namespace {

// A new try finds a host that was away sooner, because the system repeats the request of one connection ever
// more rarely.
constexpr int64_t kConnectMs = 2'000;

// A new connection takes the few bytes of a handshake at once.
bool sends(int fd, std::string_view bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

Dial::Dial(const Contacts& contacts, int peer, Purpose purpose, Deadline deadline)
    : contacts_(contacts),
      peer_(peer),
      purpose_(purpose),
      deadline_(deadline),
      connect_by_(Deadline::after_ms(kConnectMs)) {
  int reason = 0;
  socket_ = begin_dial(*contacts.of(peer).at, reason);
  if (!socket_) fail_with(reason);
}

void Dial::fail_with(int reason) {
  state_ = State::failed;
  if (reason == 0) return;
  why_ = strerror(reason);
  is_refused_ = reason == ECONNREFUSED;
}

Dial::State Dial::step() {
  if (state_ == State::connects) connect();
  if (state_ == State::connects && connect_by_.passed()) fail_with(ETIMEDOUT);
  if (state_ == State::greets) greet();
  if (state_ == State::proves) prove();
  if (state_ != State::open && state_ != State::failed && deadline_.passed())
    fail_with(state_ == State::connects ? ETIMEDOUT : 0);
  return state_;
}

pollfd Dial::waits_for() const {
  return {socket_.get(), static_cast<short>(state_ == State::connects ? POLLOUT : POLLIN), 0};
}

void Dial::connect() {
  pollfd one = waits_for();
  if (poll(&one, 1, 0) <= 0) return;
  int reason = 0;
  socklen_t size = sizeof reason;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &reason, &size) != 0) reason = errno;
  if (reason != 0) return fail_with(reason);
  Hello hello;
  hello.rank = static_cast<uint32_t>(contacts_.options.rank);
  hello.size = static_cast<uint32_t>(contacts_.options.size);
  hello.process = contacts_.of(contacts_.options.rank).process;
  random_bytes(hello.nonce);
  greeting_ = encode_hello(hello);
  state_ = State::greets;
  std::string first(1, static_cast<char>(purpose_));
  first += as_text(greeting_);
  if (!sends(socket_.get(), first)) fail_with(0);
}

void Dial::greet() {
  while (have_ < answer_.size()) {
    const ssize_t n = recv(socket_.get(), answer_.data() + have_, answer_.size() - have_, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return fail_with(0);
    have_ += static_cast<size_t>(n);
  }
  const std::span<const uint8_t, kAnswerBytes> answer(answer_);
  const Transcript transcript(contacts_.key, contacts_.terms(purpose_, contacts_.options.rank, peer_),
                              greeting_, answer.first<32>());
  if (!same_digest(answer.last<32>(), transcript.server_proof()))
    fail(Code::gang, "what listens for ", contacts_.of(peer_).place, " does not know this gang's secret");
  if (!sends(socket_.get(), as_text(transcript.client_proof()))) return fail_with(0);
  to_higher_ = transcript.to_server_key();
  to_lower_ = transcript.to_client_key();
  state_ = State::proves;
}

void Dial::prove() {
  char last = 0;
  const ssize_t n = recv(socket_.get(), &last, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n != 1 || last != kIsOpen) return fail_with(0);
  state_ = State::open;
}

Opened Dial::take() { return {peer_, purpose_, std::move(socket_), to_lower_, to_higher_}; }

}  // namespace gangway::network
