#include "parallel/fsdp/buffers.h"

#include <algorithm>
#include <cstring>

#include "parallel/fsdp/pending_reductions.h"

namespace gangway {

// The host zeroes pinned memory itself, because no stream uses the new block yet.
std::shared_ptr<Buffer> zeroed(const std::shared_ptr<Allocator>& from, size_t bytes) {
  auto buffer = Buffer::allocate(from, bytes);
  Device& device = buffer->device();
  if (buffer->kind() != MemoryKind::pinned)
    device.zero(buffer->data(), bytes, device.stream());
  else if (bytes != 0)
    std::memset(buffer->data(), 0, bytes);
  return buffer;
}

namespace {

// Refuses a buffer that something else still references, if `shards` (may be null) has it registered.
void check_replaceable(const std::shared_ptr<Buffer>& held, const Gang* shards) {
  if (shards != nullptr && shards->is_registered(held->data()))
    fail(Code::invalid_state, "a whole value or gradient that was exported is still held, and NCCL has its ",
         held->bytes(),
         " bytes registered, so that no other memory can take their place; release the export ",
         "before the model computes again, or set GANGWAY_NCCL_REGISTER=0");
}

// Returns a new buffer to use in place of `held`, which something else still references.
std::shared_ptr<Buffer> replaced(const std::shared_ptr<Buffer>& held, const std::shared_ptr<Allocator>& from,
                                 size_t bytes, const Gang* shards) {
  check_replaceable(held, shards);
  return Buffer::allocate(from, bytes);
}

}  // namespace

void RegisteredBuffers::add(const GangPtr& gang, Channel channel, const std::shared_ptr<Buffer>& buffer,
                            size_t sums) {
  if (buffer == nullptr) return;
  const auto found = std::find_if(lists_.begin(), lists_.end(), [&](const List& list) {
    return list.gang == gang && list.channel == channel;
  });
  List& list = found != lists_.end() ? *found : lists_.emplace_back(List{gang, channel, {}, 0});
  list.sums = std::max(list.sums, sums);
  if (std::find(list.buffers.begin(), list.buffers.end(), buffer) == list.buffers.end())
    list.buffers.push_back(buffer);
}

void AllGatherBuffer::allocate(std::shared_ptr<Allocator> allocator, size_t size) {
  from = std::move(allocator);
  bytes = size;
  buffer = Buffer::allocate(from, bytes);
}

uint64_t AllGatherBuffer::take() {
  if (is_shared(buffer)) buffer = replaced(buffer, from, bytes, shards.get());
  use = Use::ahead;
  return ++lease;
}

void AllGatherBuffer::check_exports() const {
  if (shards != nullptr && use != Use::in_use && is_shared(buffer)) check_replaceable(buffer, shards.get());
}

void AllGatherBuffers::check_exports() const {
  for (const AllGatherBuffer& slot : slots_) slot.check_exports();
}

void AllGatherBuffers::need(size_t bytes) { bytes_ = std::max(bytes_, bytes); }

void AllGatherBuffers::allocate(const std::shared_ptr<Allocator>& from, const GangPtr& shards, int count) {
  if (bytes_ == 0) return;
  slots_.resize(static_cast<size_t>(count));
  for (AllGatherBuffer& slot : slots_) {
    slot.shards = shards;
    slot.allocate(from, bytes_);
  }
}

void AllGatherBuffers::list(const GangPtr& gang, RegisteredBuffers& buffers) const {
  for (const AllGatherBuffer& slot : slots_) buffers.add(gang, Channel::fsdp_gather, slot.buffer);
}

AllGatherBuffer* AllGatherBuffers::find(AllGatherBuffer::Use use) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const AllGatherBuffer& slot) { return slot.use == use; });
  return found == slots_.end() ? nullptr : &*found;
}

AllGatherBuffer* AllGatherBuffers::find_free() { return find(AllGatherBuffer::Use::free); }

AllGatherBuffer* AllGatherBuffers::find() {
  AllGatherBuffer* slot = find_free();
  return slot != nullptr ? slot : find(AllGatherBuffer::Use::ahead);
}

void GradientBuffer::allocate() {
  full = Buffer::allocate(full_from, full_bytes);
  if (reduce_bytes != 0) reduce_buffer = Buffer::allocate(full_from, reduce_bytes);
  if (output_bytes != 0) reduce_output = Buffer::allocate(output_from, output_bytes);
}

void GradientBuffer::refresh() {
  if (full == nullptr)
    allocate();
  else if (is_shared(full))
    full = replaced(full, full_from, full_bytes, shards.get());
}

void GradientBuffer::check_exports(const PendingReductions& reductions) const {
  if (shards != nullptr && !held && !reductions.in_flight(reduction) && is_shared(full))
    check_replaceable(full, shards.get());
}

void GradientBuffer::list(RegisteredBuffers& buffers) const {
  for (const std::shared_ptr<Buffer>& buffer : {full, reduce_buffer, reduce_output})
    buffers.add(shards, Channel::fsdp_reduce, buffer);
}

void GradientBuffer::list_outputs(const GangPtr& replicas, RegisteredBuffers& buffers) const {
  buffers.add(replicas, Channel::replicate, reduce_output);
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
                               const std::shared_ptr<Allocator>& output_from, const GangPtr& shards,
                               int count) {
  if (full_ == 0) return;
  slots_.resize(static_cast<size_t>(count));
  for (GradientBuffer& slot : slots_) {
    slot.shards = shards;
    slot.full_from = full_from;
    slot.output_from = output_from;
    slot.full_bytes = full_;
    slot.reduce_bytes = reduce_;
    slot.output_bytes = output_;
    slot.allocate();
  }
}

void GradientBuffers::check_exports(const PendingReductions& reductions) const {
  for (const GradientBuffer& slot : slots_) slot.check_exports(reductions);
}

void GradientBuffers::list(RegisteredBuffers& buffers) const {
  for (const GradientBuffer& slot : slots_) slot.list(buffers);
}

void GradientBuffers::list_outputs(const GangPtr& replicas, RegisteredBuffers& buffers) const {
  for (const GradientBuffer& slot : slots_) slot.list_outputs(replicas, buffers);
}

GradientBuffer& GradientBuffers::next() {
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    GradientBuffer& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    if (!slot.held) return slot;
  }
  fail(Code::invalid_state, "more than ", slots_.size(),
       " parameter groups are between the start and the end of their backward; nested parameter groups need "
       "accumulate_unsharded");
}

size_t GradientBuffers::bytes() const {
  size_t bytes = 0;
  for (const GradientBuffer& slot : slots_) bytes += slot.bytes();
  return bytes;
}

}  // namespace gangway
