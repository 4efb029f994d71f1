#include "gang/network/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

namespace gangway::network {
namespace {

// `reason`: of errno, or 0 if the peer has closed the connection.
[[noreturn]] void end_of(int reason) {
  if (reason == ETIMEDOUT || reason == EHOSTUNREACH || reason == ENETUNREACH)
    throw LinkEnd{text("is lost: its host does not answer (", strerror(reason), ")")};
  throw LinkEnd{"has died: its connection ended"};
}

const std::array<char, 64 << 10> kZeros{};

}  // namespace

Link::Link(int rank, Descriptor control_socket, const Secret& to_peer, const Secret& from_peer)
    : rank(rank), control(std::move(control_socket)), reader_(from_peer), writer_(to_peer) {}

void Link::post(const ControlFrame& frame) {
  control_out += writer_.seal(frame);
  send_control();
}

void Link::send_control() {
  size_t done = 0;
  while (done < control_out.size()) {
    const ssize_t n = send(control.get(), control_out.data() + done, control_out.size() - done,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) end_of(errno);
    done += static_cast<size_t>(n);
  }
  control_out.erase(0, done);
}

bool Link::receive_control() {
  char bytes[16 << 10];
  const ssize_t n = recv(control.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) end_of(n == 0 ? 0 : errno);
  heard = Deadline::Clock::now();
  beats = 0;
  reader_.add({bytes, static_cast<size_t>(n)});
  return static_cast<size_t>(n) == sizeof bytes;
}

void Link::queue(const std::shared_ptr<Group>& group, const TransferPtr& transfer, size_t piece) {
  transfer->out[piece].is_queued = true;
  queue_.push_back({group, transfer, piece});
}

bool Link::start_chunk() {
  if (queue_.empty()) return false;
  sending_ = std::move(queue_.front());
  queue_.pop_front();
  const Outgoing& piece = sending_.transfer->out[sending_.piece];
  const Key& key = sending_.transfer->key;
  out_head_ = {};
  out_head_.gang = sending_.group->id;
  out_head_.sequence = key.sequence;
  out_head_.channel = static_cast<uint8_t>(key.channel);
  out_head_.lane = static_cast<uint8_t>(key.lane);
  out_head_.part = piece.part;
  out_head_.bytes = static_cast<uint32_t>(std::min(kChunk, piece.ready - piece.sent));
  out_at_ = piece.from + piece.sent;
  out_tail_ = 1;
  out_done_ = 0;
  is_sending_ = true;
  return true;
}

size_t Link::send_part(size_t most) {
  const size_t payload_end = sizeof out_head_ + out_head_.bytes;
  iovec parts[3];
  int count = 0;
  if (out_done_ < sizeof out_head_)
    parts[count++] = {reinterpret_cast<char*>(&out_head_) + out_done_, sizeof out_head_ - out_done_};
  bool whole = true;
  if (out_done_ < payload_end) {
    const size_t at = std::max(out_done_, sizeof out_head_) - sizeof out_head_;
    size_t bytes = std::min<size_t>(out_head_.bytes - at, std::max<size_t>(most, 1));
    if (out_at_ == nullptr) bytes = std::min(bytes, kZeros.size());
    const char* const from = out_at_ == nullptr ? kZeros.data() : out_at_ + at;
    parts[count++] = {const_cast<char*>(from), bytes};
    whole = at + bytes == out_head_.bytes;
  }
  if (whole) {
    const size_t at = std::max(out_done_, payload_end) - payload_end;
    parts[count++] = {reinterpret_cast<char*>(&out_tail_) + at, sizeof out_tail_ - at};
  }
  const size_t n = send_parts({parts, static_cast<size_t>(count)});
  out_done_ += n;
  return n;
}

size_t Link::send_parts(std::span<const iovec> parts) {
  if (wire != nullptr) return wire->send(parts.data(), static_cast<int>(parts.size()));
  if (memory != nullptr) {
    const size_t n = memory->write(parts);
    ring_bell();
    return n;
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t n = sendmsg(data.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n < 0) end_of(errno);
  return static_cast<size_t>(n);
}

size_t Link::receive_part(size_t most) {
  if (memory != nullptr && in_fold_ != nullptr && in_done_ >= sizeof in_head_ &&
      in_done_ < sizeof in_head_ + in_head_.bytes)
    return fold_part(most);
  char passing[64 << 10];  // what is folded, or thrown away
  size_t payload = 0;
  iovec parts[2];
  int count = 0;
  if (in_done_ < sizeof in_head_) {
    parts[count++] = {reinterpret_cast<char*>(&in_head_) + in_done_, sizeof in_head_ - in_done_};
  } else {
    const size_t at = in_done_ - sizeof in_head_;
    bool whole = true;
    if (at < in_head_.bytes) {
      size_t bytes = std::min<size_t>(in_head_.bytes - at, std::max<size_t>(most, 1));
      if (in_at_ == nullptr) bytes = std::min(bytes, sizeof passing);
      parts[count++] = {in_at_ == nullptr ? passing : in_at_ + at, bytes};
      payload = bytes;
      whole = at + bytes == in_head_.bytes;
    }
    if (whole) {
      const size_t tail = at > in_head_.bytes ? at - in_head_.bytes : 0;
      parts[count++] = {reinterpret_cast<char*>(&in_tail_) + tail, sizeof in_tail_ - tail};
    }
  }
  const size_t n = receive_parts({parts, static_cast<size_t>(count)});
  if (n == 0) return 0;
  if (payload != 0 && in_fold_ != nullptr) in_fold_->take(in_input_, passing, std::min(n, payload));
  in_done_ += n;
  heard = Deadline::Clock::now();
  return n;
}

// Folds some of the payload from where it lies in shared memory.
size_t Link::fold_part(size_t most) {
  const size_t left = sizeof in_head_ + in_head_.bytes - in_done_;
  if (!memory->has_bytes()) take_bells();
  const std::span<const char> bytes = memory->front(std::min(left, std::max<size_t>(most, 1)));
  if (bytes.empty()) return 0;
  in_fold_->take(in_input_, bytes.data(), bytes.size());
  memory->drop(bytes.size());
  ring_bell();
  in_done_ += bytes.size();
  heard = Deadline::Clock::now();
  return bytes.size();
}

size_t Link::receive_parts(std::span<const iovec> parts) {
  if (wire != nullptr) return wire->receive(parts.data(), static_cast<int>(parts.size()));
  if (memory != nullptr) {
    if (!memory->has_bytes()) take_bells();
    const size_t n = memory->read(parts);
    ring_bell();
    return n;
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t n = recvmsg(data.get(), &message, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n <= 0) end_of(n == 0 ? 0 : errno);
  return static_cast<size_t>(n);
}

// The end of the connection counts only when the peer has left nothing to read.
void Link::take_bells() {
  char bells[64];
  const ssize_t n = recv(data.get(), bells, sizeof bells, MSG_DONTWAIT);
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
  const int reason = n == 0 ? 0 : errno;
  if (!memory->has_bytes()) end_of(reason);
}

// A peer that cannot be rung has ended, which the next receive_data() finds.
void Link::ring_bell() {
  if (memory->owes_bell()) send(data.get(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

short Link::memory_events() const {
  if (memory == nullptr || !data) return 0;
  return static_cast<short>((memory->has_bytes() ? POLLIN : 0) |
                            (has_data() && memory->has_room() ? POLLOUT : 0));
}

bool Link::may_sleep() {
  if (memory == nullptr || !data) return true;
  const bool has_come = memory->asks_for_bytes();
  return !has_come && !(has_data() && memory->asks_for_room());
}

void Link::forget(const Transfer& transfer) noexcept {
  std::erase_if(queue_, [&](const PieceOfCall& one) { return one.transfer.get() == &transfer; });
  if (is_sending_ && sending_.transfer.get() == &transfer) {
    // A tail that has left in part was good, and so was all before it.
    if (out_done_ <= sizeof out_head_ + out_head_.bytes) out_tail_ = 0;
    sending_ = {};
    out_at_ = nullptr;
  }
  if (landing_.transfer.get() == &transfer) {
    landing_ = {};
    in_at_ = nullptr;
    in_fold_ = nullptr;
  }
}

}  // namespace gangway::network
