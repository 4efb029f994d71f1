#include "parallel/fsdp/buffers.h"

#include <algorithm>

#include "parallel/fsdp/group_gradients.h"
#include "parallel/fsdp/group_values.h"
#include "parallel/interrupted.h"

namespace gangway {

void AllGatherBuffer::allocate(std::shared_ptr<Allocator> allocator, size_t size) {
  from = std::move(allocator);
  bytes = size;
  buffer = Buffer::allocate(from, bytes);
}

const std::shared_ptr<Buffer>& AllGatherBuffer::take(GroupValues& by) {
  user = &by;
  if (buffer.use_count() > 1) buffer = Buffer::allocate(from, bytes);
  return buffer;
}

void AllGatherBuffers::need(size_t bytes) { bytes_ = std::max(bytes_, bytes); }

void AllGatherBuffers::allocate(const std::shared_ptr<Allocator>& from, int count) {
  if (bytes_ == 0) return;
  slots_.resize(static_cast<size_t>(count));
  for (AllGatherBuffer& slot : slots_) slot.allocate(from, bytes_);
}

AllGatherBuffer* AllGatherBuffers::find_free() {
  for (AllGatherBuffer& slot : slots_)
    if (slot.user == nullptr) return &slot;
  return nullptr;
}

AllGatherBuffer* AllGatherBuffers::find(Stream& stream) {
  if (AllGatherBuffer* slot = find_free()) return slot;
  for (AllGatherBuffer& slot : slots_)
    if (slot.user->drop(stream)) return &slot;
  return nullptr;
}

void GradientBuffer::allocate() {
  full = Buffer::allocate(full_from, full_bytes);
  if (reduce_bytes != 0) reduce_buffer = Buffer::allocate(full_from, reduce_bytes);
  if (output_bytes != 0) reduce_output = Buffer::allocate(output_from, output_bytes);
}

void GradientBuffer::refresh() {
  if (full == nullptr)
    allocate();
  else if (full.use_count() > 1)
    full = Buffer::allocate(full_from, full_bytes);
}

void GradientBuffer::release() {
  full.reset();
  reduce_buffer.reset();
  reduce_output.reset();
}

void GradientBuffers::need(size_t full, size_t reduce, size_t output) {
  full_ = std::max(full_, full);
  reduce_ = std::max(reduce_, reduce);
  output_ = std::max(output_, output);
}

void GradientBuffers::allocate(const std::shared_ptr<Allocator>& full_from,
                               const std::shared_ptr<Allocator>& output_from, int count) {
  if (full_ == 0) return;
  slots_.resize(static_cast<size_t>(count));
  for (GradientBuffer& slot : slots_) {
    slot.full_from = full_from;
    slot.output_from = output_from;
    slot.full_bytes = full_;
    slot.reduce_bytes = reduce_;
    slot.output_bytes = output_;
    slot.allocate();
  }
}

GradientBuffer& GradientBuffers::next() {
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    GradientBuffer& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    if (slot.user == nullptr || slot.in_flight) return slot;
  }
  fail(Code::invalid_state, "more than ", slots_.size(),
       " units are between the start and the end of their backward; nested units need accumulate_unsharded");
}

size_t GradientBuffers::bytes() const {
  size_t bytes = 0;
  for (const GradientBuffer& slot : slots_) bytes += slot.bytes();
  return bytes;
}

void PendingReductions::push(GradientBuffer& slot, Stream& stream) {
  slot.in_flight = true;
  line_.push_back(&slot);
  chain(stream);
}

void PendingReductions::chain(Stream& stream) {
  for (GradientBuffer* slot : line_) {
    if (slot == line_.back()) return;
    if (slot->second != nullptr) continue;
    if (slot->user->second_gang().size() > 1)
      wait_or_break(slot->user->first_gang(), [&] { slot->first->order(stream); });
    slot->second = slot->user->reduce_over_replicas(*slot, stream);
  }
}

void PendingReductions::finish_through(GradientBuffer& slot, Stream& stream) {
  while (slot.in_flight) {
    GW_CHECK(line_.empty(), ==, false);
    accumulate(*line_.front(), stream);
  }
}

void PendingReductions::finish_all(Stream& stream) {
  // All sums first: peers may wait for this rank's part of a later one.
  for (GradientBuffer* slot : line_)
    wait_or_break(slot->user->first_gang(), [&] { slot->first->order(stream); });
  while (!line_.empty()) accumulate(*line_.front(), stream);
}

void PendingReductions::give_up() noexcept {
  for (const GradientBuffer* slot : line_) {
    Works& works = *slot->user->first_gang().owner()->works();
    for (const WorkPtr& work : {slot->first, slot->second})
      for (const auto& buffer : {slot->full, slot->reduce_buffer, slot->reduce_output, slot->user->local()})
        if (work != nullptr && buffer != nullptr) works.keep(work, buffer);
  }
  line_.clear();
}

void PendingReductions::accumulate(GradientBuffer& slot, Stream& stream) {
  Gang& first = slot.user->first_gang();
  Gang& second = slot.user->second_gang();
  wait_or_break(first, [&] { slot.first->order(stream); });
  if (slot.second == nullptr) slot.second = slot.user->reduce_over_replicas(slot, stream);
  wait_or_break(second, [&] { slot.second->order(stream); });
  slot.user->accumulate(slot, stream);
  wait_or_break(first, [&] { slot.first->order_input(stream); });
  wait_or_break(second, [&] { slot.second->order_input(stream); });
  slot.first = slot.second = nullptr;
  slot.in_flight = false;
  slot.user = nullptr;
  line_.pop_front();
}

}  // namespace gangway
