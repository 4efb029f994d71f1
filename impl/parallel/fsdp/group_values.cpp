#include "parallel/fsdp/group_values.h"

#include "base/interrupt.h"
#include "parallel/memory_use.h"

namespace gangway {
GroupValues::GroupValues(const std::string& group, const GroupContext& place, const Packing& packing,
                         bool shares_slots)
    : name_(group), place_(place), packing_(packing) {
  gathering_.shares_slots = shares_slots;
  if (packing_.bytes.full == 0) return;  // nothing to shard, so Storage::whole
  if (place_.shard_ranks() == 1 && place_.offload == nullptr) return;
  const bool shared =
      place_.offload == nullptr && place_.regions && place_.shards->shared_memory() != nullptr;
  storage_ = shared ? Storage::region : Storage::gathered;
  if (storage_ != Storage::gathered) return;
  if (shares_slots) place_.values->need(packing_.bytes.full);
  if (place_.keepers == nullptr) return;
  for (const PackedParameter& p : packing_.parameters) kept_.bytes += kept_bytes(p);
}

// Hands the buffers to the rank's list of works, because peers may still read this rank's rows and this
// rank's own gather may still write.
GroupValues::~GroupValues() {
  if (place_.shards == nullptr) return;
  Works& works = *place_.shards->owner()->works();
  if (gathering_.last != nullptr) works.keep(gathering_.last, own_);
  if (kept_.last != nullptr) works.keep(kept_.last, kept_.buffer);
  const WorkPtr& writes = gathering_.from_keepers ? kept_.last : gathering_.last;
  if (gathered() && writes != nullptr) works.keep(writes, gathering_.slot->buffer);
}

void GroupValues::allocate() {
  const GroupBytes& b = packing_.bytes;
  masters_ = zeroed(place_.rest(), b.masters);  // zeroed, because padding must be zero and is never written
  if (storage_ == Storage::region) return;
  const bool peers_read = storage_ == Storage::gathered && place_.offload == nullptr;
  own_ = zeroed(peers_read ? place_.reachable() : place_.rest(), b.own);
  if (storage_ == Storage::gathered && !gathering_.shares_slots)
    gathering_.own.allocate(place_.plain(), b.full);
  if (kept_.bytes != 0) kept_.buffer = Buffer::allocate(place_.reachable(), kept_.bytes);
}

size_t GroupValues::region_bytes() const { return storage_ == Storage::region ? packing_.bytes.full : 0; }

void GroupValues::open_region(const SharedRegion& region, const SharedRegion& gates, size_t gate_offset) {
  region_ = region;
  gate_.emplace(place_.shards, gates, gate_offset, name_);
}

void GroupValues::fill(uint64_t seed, Stream& stream) {
  for (const PackedParameter& packed : packing_.parameters) {
    poll_interrupt_at_times();
    Parameter& p = *packed.parameter;
    const size_t first = static_cast<size_t>(place_.shard_rank()) * packed.piece_bytes(packed.compute);
    const Tensor own = storage_ == Storage::region
                           ? own_box(region_.writable, packed.full_at + first, packed.compute, packed)
                           : own_box(own_, packed.own_at, packed.compute, packed);
    p.shard = packed.has_copy() ? own_box(masters_, packed.master_at, packed.master, packed) : own;
    p.shard_copy = packed.has_copy() ? own : Tensor();
    p.value = storage_ == Storage::whole ? own : Tensor();
    if (p.shard.count() == 0) continue;
    initialize_box(*place_.ops, stream, p, seed, p.box(), p.shard);
    if (packed.has_copy()) place_.ops->cast(p.shard, p.shard_copy, stream);
  }
}

void GroupValues::show(const std::shared_ptr<Buffer>& buffer) {
  for (const PackedParameter& p : packing_.parameters)
    p.parameter->value = whole_view(buffer, p.full_at, p.compute, p);
}

// The division has no remainder, because the number of keepers divides the number of ranks. The result is
// rounded up, so that each parameter's part starts at a multiple of 64 bytes.
size_t GroupValues::kept_bytes(const PackedParameter& p) const {
  const size_t part = p.full_bytes(p.compute) / static_cast<size_t>(place_.keepers->size());
  return (part + 63) / 64 * 64;
}

void GroupValues::gather(AllGatherBuffer& slot, Stream& stream) {
  gathering_.lease = slot.take();  // first, because it may throw; then nothing has changed
  gathering_.slot = &slot;
  gathering_.from_keepers = kept_.valid;
  if (place_.offload != nullptr && !kept_.valid) return gather_from_host(slot, stream);
  const GangPtr& from = kept_.valid ? place_.keepers : place_.shards;
  std::byte* kept = kept_.valid ? static_cast<std::byte*>(kept_.buffer->data()) : nullptr;
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = kept != nullptr ? kept : own_piece(own_, p.own_at, p.compute, p).raw();
    c.out = all_pieces(slot.buffer, p.full_at, p.compute, p).raw();
    c.count = static_cast<size_t>(p.pieces() / from->size());
    c.dtype = p.compute;
    c.async_input = true;
    span.push_back(c);
    if (kept != nullptr) kept += kept_bytes(p);
  }
  WorkPtr& last = kept_.valid ? kept_.last : gathering_.last;
  slot.gathering = last = from->run(Channel::fsdp_gather, span, &stream);
}

// Copies this rank's rows to their place in the slot, and gathers in place from there.
void GroupValues::gather_from_host(AllGatherBuffer& slot, Stream& stream) {
  Stream& side = place_.offload->after(stream);
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    const size_t bytes = p.piece_bytes(p.compute);
    const Tensor own = own_piece(own_, p.own_at, p.compute, p);
    const Tensor whole = all_pieces(slot.buffer, p.full_at, p.compute, p);
    void* const piece =
        whole.slice(0, p.piece * place_.shard_rank(), p.piece * (place_.shard_rank() + 1)).raw();
    if (piece != nullptr) place_.ops->device().copy(piece, own.raw(), bytes, side);
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = piece;
    c.out = whole.raw();
    c.count = static_cast<size_t>(p.piece);
    c.dtype = p.compute;
    span.push_back(c);
  }
  if (place_.shard_ranks() > 1) {
    slot.gathering = gathering_.last = place_.shards->run(Channel::fsdp_gather, span, &side);
    return;
  }
  if (slot.copied == nullptr) slot.copied = place_.ops->device().make_event();
  slot.copied->record(side);
}

void GroupValues::keep_part(Stream& stream) {
  if (kept_.bytes == 0 || !unsharded_) return;
  if (kept_.last != nullptr) kept_.last->order_input(stream);  // peers may still read the last step's part
  kept_.last = nullptr;
  kept_.valid = true;
  auto* kept = static_cast<std::byte*>(kept_.buffer->data());
  if (kept == nullptr) return;  // a meta device
  for (const PackedParameter& p : packing_.parameters) {
    const size_t bytes = p.full_bytes(p.compute) / static_cast<size_t>(place_.keepers->size());
    const auto* whole =
        static_cast<const std::byte*>(all_pieces(gathering_.slot->buffer, p.full_at, p.compute, p).raw());
    place_.ops->device().copy(kept, whole + static_cast<size_t>(place_.keepers->rank()) * bytes, bytes,
                              stream);
    kept += kept_bytes(p);
  }
}

bool GroupValues::gathered() const {
  return gathering_.slot != nullptr && gathering_.slot->lease == gathering_.lease;
}

WorkPtr GroupValues::gathering() const { return gathered() ? gathering_.slot->gathering : nullptr; }

void GroupValues::prefetch(Stream& stream) {
  if (storage_ != Storage::gathered || unsharded_ || gathered()) return;
  AllGatherBuffer* slot = gathering_.shares_slots ? place_.values->find_free() : &gathering_.own;
  if (slot != nullptr) gather(*slot, stream);
}

void GroupValues::wait_gathered(Stream& stream) {
  if (!gathered()) {
    AllGatherBuffer* slot = gathering_.shares_slots ? place_.values->find() : &gathering_.own;
    if (slot == nullptr)
      fail(Code::invalid_state, "parameter group ", name_,
           ": every slot of gathered values is in use; set reshard_after_forward = 0 for parameter groups "
           "inside of "
           "others");
    wait_for(*slot, stream);  // the slot may hold values that were prefetched for another parameter group
    gather(*slot, stream);
  }
  wait_for(*gathering_.slot, stream);
  gathering_.slot->use = AllGatherBuffer::Use::in_use;
}

void GroupValues::wait_for(AllGatherBuffer& slot, Stream& stream) {
  if (slot.gathering != nullptr) slot.gathering->order(stream);
  slot.gathering = nullptr;
  if (slot.copied != nullptr) stream.wait(*slot.copied);
}

// The slot stays as it is until its next user takes it. This group does not use its values again: its next
// unshard starts a new gather.
void GroupValues::leave_slot() {
  if (gathered()) gathering_.slot->use = AllGatherBuffer::Use::free;
  gathering_.slot = nullptr;
}

void GroupValues::unshard(Stream& stream) {
  if (unsharded_) return;
  if (updating_)
    fail(Code::invalid_state, "parameter group ", name_, ": unshard between begin_update and end_update");
  switch (storage_) {
    case Storage::whole: break;
    case Storage::region:
      gate_->wait_ready();
      show(region_.readable);
      break;
    case Storage::gathered:
      wait_gathered(stream);
      show(gathering_.slot->buffer);
      break;
  }
  unsharded_ = true;
}

void GroupValues::reshard() {
  if (!unsharded_) return;
  kept_.valid = false;
  drop_whole();
}

void GroupValues::drop_whole(bool wanted_next) {
  unsharded_ = false;
  if (storage_ == Storage::whole) return;
  for (const PackedParameter& p : packing_.parameters) p.parameter->value = Tensor();
  if (wanted_next && kept_.bytes == 0 && gathered())
    gathering_.slot->use = AllGatherBuffer::Use::ahead;
  else
    leave_slot();
}

void GroupValues::release(Stream& stream) {
  updating_ = true;
  kept_.valid = false;
  if (gate_) gate_->release();
  if (gathered()) wait_for(*gathering_.slot, stream);
  leave_slot();  // prefetched values are of the old version
}

void GroupValues::wait_released(Stream& stream) {
  if (gate_) gate_->wait_released();
  if (gathering_.last != nullptr) gathering_.last->order_input(stream);
  gathering_.last = nullptr;
  if (place_.offload != nullptr) place_.offload->before(stream);
}

void GroupValues::publish(bool cast, Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (cast && p.has_copy() && p.parameter->shard.count() != 0)
      place_.ops->cast(p.parameter->shard, p.parameter->shard_copy, stream);
  updating_ = false;
  if (!gate_) return;
  stream.synchronize();  // peers read the shared rows on the host as soon as the counter changes
  gate_->publish();
}

void GroupValues::count(MemoryUse& use) const {
  const GroupBytes& b = packing_.bytes;
  (place_.offload != nullptr ? use.host : use.master) += b.masters;
  if (storage_ == Storage::region) {
    use.region_rows += b.own;
    return;
  }
  (place_.offload != nullptr ? use.host : use.master) += b.own_masters;
  (place_.offload != nullptr ? use.host : use.copies) += b.own_copies;
  use.gathered += gathering_.own.bytes + kept_.bytes;
}

}  // namespace gangway
