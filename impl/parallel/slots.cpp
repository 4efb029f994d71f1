#include "parallel/slots.h"

#include <algorithm>

#include "parallel/interrupted.h"
#include "parallel/unit_gradients.h"
#include "parallel/unit_values.h"

namespace gangway {

void ValueSlot::allocate(std::shared_ptr<Allocator> allocator, size_t size) {
  from = std::move(allocator);
  bytes = size;
  buffer = Buffer::allocate(from, bytes);
}

const std::shared_ptr<Buffer>& ValueSlot::take(UnitValues& by) {
  user = &by;
  if (buffer.use_count() > 1) buffer = Buffer::allocate(from, bytes);
  return buffer;
}

void ValueRing::need(size_t bytes) { bytes_ = std::max(bytes_, bytes); }

void ValueRing::allocate(const std::shared_ptr<Allocator>& from, int count) {
  if (bytes_ == 0) return;
  slots_.resize(static_cast<size_t>(count));
  for (ValueSlot& slot : slots_) slot.allocate(from, bytes_);
}

ValueSlot* ValueRing::find_free() {
  for (ValueSlot& slot : slots_)
    if (slot.user == nullptr) return &slot;
  return nullptr;
}

ValueSlot* ValueRing::find(Stream& stream) {
  if (ValueSlot* slot = find_free()) return slot;
  for (ValueSlot& slot : slots_)
    if (slot.user->drop(stream)) return &slot;
  return nullptr;
}

void GradientSlot::allocate() {
  full = Buffer::allocate(full_from, full_bytes);
  if (wire_bytes != 0) wire = Buffer::allocate(full_from, wire_bytes);
  if (landing_bytes != 0) landing = Buffer::allocate(landing_from, landing_bytes);
}

void GradientSlot::refresh() {
  if (full == nullptr)
    allocate();
  else if (full.use_count() > 1)
    full = Buffer::allocate(full_from, full_bytes);
}

void GradientSlot::release() {
  full.reset();
  wire.reset();
  landing.reset();
}

void GradientRing::need(size_t full, size_t wire, size_t landing) {
  full_ = std::max(full_, full);
  wire_ = std::max(wire_, wire);
  landing_ = std::max(landing_, landing);
}

void GradientRing::allocate(const std::shared_ptr<Allocator>& full_from,
                            const std::shared_ptr<Allocator>& landing_from, int count) {
  if (full_ == 0) return;
  slots_.resize(static_cast<size_t>(count));
  for (GradientSlot& slot : slots_) {
    slot.full_from = full_from;
    slot.landing_from = landing_from;
    slot.full_bytes = full_;
    slot.wire_bytes = wire_;
    slot.landing_bytes = landing_;
    slot.allocate();
  }
}

GradientSlot& GradientRing::next() {
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    GradientSlot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    if (slot.user == nullptr || slot.in_flight) return slot;
  }
  fail(Code::invalid_state, "more than ", slots_.size(),
       " units are between the start and the end of their backward; nested units need accumulate_unsharded");
}

size_t GradientRing::bytes() const {
  size_t bytes = 0;
  for (const GradientSlot& slot : slots_) bytes += slot.bytes();
  return bytes;
}

void ReductionLine::push(GradientSlot& slot, Stream& stream) {
  slot.in_flight = true;
  line_.push_back(&slot);
  advance(stream);
}

void ReductionLine::advance(Stream& stream) {
  for (GradientSlot* slot : line_) {
    if (slot->second != nullptr) continue;
    if (!slot->first->poll()) return;
    slot->first->order(stream);
    slot->second = slot->user->reduce_over_replicas(*slot, stream);
  }
}

void ReductionLine::settle(GradientSlot& slot, Stream& stream) {
  while (slot.in_flight) {
    GW_CHECK(line_.empty(), ==, false);
    land(*line_.front(), stream);
  }
}

void ReductionLine::settle_all(Stream& stream) {
  // All sums first: peers may wait for this rank's part of a later one.
  for (GradientSlot* slot : line_)
    wait_or_break(slot->user->first_gang(), [&] { slot->first->order(stream); });
  while (!line_.empty()) land(*line_.front(), stream);
}

void ReductionLine::give_up() noexcept {
  for (const GradientSlot* slot : line_) {
    Works& works = *slot->user->first_gang().owner()->works();
    for (const WorkPtr& work : {slot->first, slot->second})
      for (const auto& buffer : {slot->full, slot->wire, slot->landing, slot->user->local()})
        if (work != nullptr && buffer != nullptr) works.keep(work, buffer);
  }
  line_.clear();
}

void ReductionLine::land(GradientSlot& slot, Stream& stream) {
  Gang& first = slot.user->first_gang();
  Gang& second = slot.user->second_gang();
  wait_or_break(first, [&] { slot.first->order(stream); });
  if (slot.second == nullptr) slot.second = slot.user->reduce_over_replicas(slot, stream);
  wait_or_break(second, [&] { slot.second->order(stream); });
  slot.user->land(slot, stream);
  wait_or_break(first, [&] { slot.first->order_input(stream); });
  wait_or_break(second, [&] { slot.second->order_input(stream); });
  slot.first = slot.second = nullptr;
  slot.in_flight = false;
  slot.user = nullptr;
  line_.pop_front();
}

}  // namespace gangway
