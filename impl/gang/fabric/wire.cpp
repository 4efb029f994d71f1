#include "gang/fabric/wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace gangway::fabric {

// Beside kWindow messages with bytes the peer may have sent one without for each that it has taken.
MessageWire::MessageWire(Endpoint& endpoint, fi_addr_t to, uint64_t own_tag, uint64_t peer_tag)
    : endpoint_(endpoint), to_(to), own_tag_(own_tag), peer_tag_(peer_tag) {
  free_ = endpoint_.make_slots(kWindow, kSlotBytes, *this);
  free_notes_ = endpoint_.make_slots(kWindow, sizeof(Head), *this);
  for (Slot* const slot : endpoint_.make_slots(2 * kWindow, kSlotBytes, *this)) take_again(*slot);
}

MessageWire::~MessageWire() { endpoint_.forget(*this); }

size_t MessageWire::send(const iovec* parts, int count) {
  if (!failure_.empty() || !has_room()) return 0;
  Slot& slot = *free_.back();
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const size_t some = std::min(parts[i].iov_len, kSlotBytes - sizeof(Head) - bytes);
    std::memcpy(slot.bytes + sizeof(Head) + bytes, parts[i].iov_base, some);
    bytes += some;
  }
  if (bytes == 0) return 0;
  free_.pop_back();
  post(slot, sent_++, bytes);
  return bytes;
}

void MessageWire::post(Slot& slot, uint32_t number, size_t bytes) {
  const Head head{taken_, number, static_cast<uint32_t>(bytes)};
  told_ = taken_;
  std::memcpy(slot.bytes, &head, sizeof head);
  slot.size = sizeof head + bytes;
  try {
    if (!unposted_.empty() || !endpoint_.post_send(slot, to_, own_tag_)) unposted_.push_back(&slot);
  } catch (const Error& error) {
    failed(error.message());
  }
}

size_t MessageWire::receive(const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    char* to = static_cast<char*>(parts[i].iov_base);
    for (size_t left = parts[i].iov_len; left != 0;) {
      if (!has_arrived()) return bytes;
      Arrived& first = arrived_[taken_ % kWindow];
      const size_t some = std::min(left, first.end - first.at);
      std::memcpy(to, first.slot->bytes + first.at, some);
      to += some;
      left -= some;
      bytes += some;
      first.at += some;
      if (first.at != first.end) continue;
      Slot& empty = *std::exchange(first, {}).slot;
      ++taken_;
      take_again(empty);
    }
  }
  return bytes;
}

void MessageWire::take_again(Slot& slot) {
  try {
    if (!unreceived_.empty() || !endpoint_.post_receive(slot, peer_tag_)) unreceived_.push_back(&slot);
  } catch (const Error& error) {
    failed(error.message());
  }
}

void MessageWire::left(Slot& slot) { (slot.size == sizeof(Head) ? free_notes_ : free_).push_back(&slot); }

void MessageWire::came(Slot& slot, size_t bytes) {
  Head head;
  if (bytes < sizeof head) return failed("a message without a head");
  std::memcpy(&head, slot.bytes, sizeof head);
  const uint32_t ahead = head.number - taken_;
  const auto more = static_cast<int32_t>(head.taken - acknowledged_);  // negative: a newer message came first
  if (bytes != sizeof head + head.bytes || more > static_cast<int32_t>(sent_ - acknowledged_) ||
      (head.bytes != 0 && (ahead >= kWindow || arrived_[head.number % kWindow].slot != nullptr)))
    return failed("a message that no peer sends");
  if (more > 0) acknowledged_ = head.taken;
  if (head.bytes == 0) return take_again(slot);
  arrived_[head.number % kWindow] = {&slot, sizeof head, bytes};
}

void MessageWire::failed(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

void MessageWire::push() {
  if (!failure_.empty()) return;
  try {
    while (!unreceived_.empty() && endpoint_.post_receive(*unreceived_.front(), peer_tag_))
      unreceived_.pop_front();
    while (!unposted_.empty() && endpoint_.post_send(*unposted_.front(), to_, own_tag_))
      unposted_.pop_front();
    const bool tells = told_ != taken_ && (!has_arrived() || taken_ - told_ >= kWindow / 2);
    if (!tells || free_notes_.empty()) return;
    Slot& note = *free_notes_.back();
    free_notes_.pop_back();
    post(note, sent_, 0);
  } catch (const Error& error) {
    failed(error.message());
  }
}

}  // namespace gangway::fabric
