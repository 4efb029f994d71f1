#include "parallel/fsdp/gathered_values.h"

#include "parallel/memory_use.h"

namespace gangway {

GatheredValues::GatheredValues(const std::string& group, const GroupContext& place, const Packing& packing,
                               bool shares_slots)
    : GroupValues(group, place, packing), shares_slots_(shares_slots) {
  if (shares_slots_) place_.values->need(packing_.bytes.full);
  if (place_.post_forward_gang == nullptr) return;
  for (const PackedParameter& p : packing_.parameters) kept_.bytes += kept_bytes(p);
}

// Hands the buffers to the rank's list of works, because peers may still read this rank's rows and this
// rank's own gather may still write.
GatheredValues::~GatheredValues() {
  Works& works = *place_.shards->owner()->works();
  if (last_ != nullptr) works.keep(last_, own_);
  if (kept_.last != nullptr) works.keep(kept_.last, kept_.buffer);
  const WorkPtr& writes = from_post_forward_gang_ ? kept_.last : last_;
  if (gathered() && writes != nullptr) works.keep(writes, slot_->buffer);
}

void GatheredValues::allocate() {
  GroupValues::allocate();
  const bool peers_read = place_.offload == nullptr;
  own_ = zeroed(place_.moved(peers_read ? place_.reachable() : place_.rest()), packing_.bytes.own);
  if (!shares_slots_) {
    own_slot_.shards = place_.registers ? place_.shards : nullptr;
    own_slot_.allocate(place_.moved(place_.plain()), packing_.bytes.full);
  }
  if (kept_.bytes != 0) kept_.buffer = Buffer::allocate(place_.moved(place_.reachable()), kept_.bytes);
}

Tensor GatheredValues::own_rows(const PackedParameter& p) const {
  return own_box(own_, p.own_at, p.compute, p);
}

// The division has no remainder, because the size of the post-forward gang divides the number of ranks. The
// result is rounded up, so that each parameter's part starts at a multiple of 64 bytes.
size_t GatheredValues::kept_bytes(const PackedParameter& p) const {
  const size_t part = p.full_bytes(p.compute) / static_cast<size_t>(place_.post_forward_gang->size());
  return (part + 63) / 64 * 64;
}

void GatheredValues::gather(AllGatherBuffer& slot, Stream& stream) {
  lease_ = slot.take();  // first, because it may throw; then nothing has changed
  slot_ = &slot;
  from_post_forward_gang_ = kept_.valid;
  if (place_.offload != nullptr && !kept_.valid) return gather_from_host(slot, stream);
  const GangPtr& from = kept_.valid ? place_.post_forward_gang : place_.shards;
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
  WorkPtr& last = kept_.valid ? kept_.last : last_;
  slot.gathering = last = from->run(Channel::fsdp_gather, span, &stream);
}

// Copies this rank's rows to their place in the slot, and gathers in place from there.
void GatheredValues::gather_from_host(AllGatherBuffer& slot, Stream& stream) {
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
    slot.gathering = last_ = place_.shards->run(Channel::fsdp_gather, span, &side);
    return;
  }
  if (slot.copied == nullptr) slot.copied = place_.ops->device().make_event();
  slot.copied->record(side);
}

void GatheredValues::keep_part(Stream& stream) {
  if (kept_.bytes == 0 || !unsharded()) return;
  if (kept_.last != nullptr) kept_.last->order_input(stream);  // peers may still read the last step's part
  kept_.last = nullptr;
  kept_.valid = true;
  auto* kept = static_cast<std::byte*>(kept_.buffer->data());
  if (kept == nullptr) return;  // a meta device
  for (const PackedParameter& p : packing_.parameters) {
    const size_t bytes = p.full_bytes(p.compute) / static_cast<size_t>(place_.post_forward_gang->size());
    const auto* whole =
        static_cast<const std::byte*>(all_pieces(slot_->buffer, p.full_at, p.compute, p).raw());
    place_.ops->device().copy(kept, whole + static_cast<size_t>(place_.post_forward_gang->rank()) * bytes,
                              bytes, stream);
    kept += kept_bytes(p);
  }
}

bool GatheredValues::gathered() const { return slot_ != nullptr && slot_->lease == lease_; }

WorkPtr GatheredValues::gathering() const { return gathered() ? slot_->gathering : nullptr; }

void GatheredValues::prefetch(Stream& stream) {
  if (unsharded() || gathered()) return;
  AllGatherBuffer* slot = shares_slots_ ? place_.values->find_free() : &own_slot_;
  if (slot != nullptr) gather(*slot, stream);
}

void GatheredValues::make_whole(Stream& stream) {
  if (!gathered()) {
    AllGatherBuffer* slot = shares_slots_ ? place_.values->find() : &own_slot_;
    if (slot == nullptr)
      fail(Code::invalid_state, "parameter group ", name_,
           ": every slot of gathered values is in use; set reshard_after_forward = 0 for parameter groups "
           "inside of others");
    wait_for(*slot, stream);  // the slot may hold values that were prefetched for another parameter group
    gather(*slot, stream);
  }
  wait_for(*slot_, stream);
  slot_->use = AllGatherBuffer::Use::in_use;
  show(slot_->buffer);
}

void GatheredValues::wait_for(AllGatherBuffer& slot, Stream& stream) {
  if (slot.gathering != nullptr) slot.gathering->order(stream);
  slot.gathering = nullptr;
  if (slot.copied != nullptr) stream.wait(*slot.copied);
}

// The slot stays as it is until its next user takes it. This group does not use its values again: its next
// unshard starts a new gather.
void GatheredValues::leave_slot() {
  if (gathered()) slot_->use = AllGatherBuffer::Use::free;
  slot_ = nullptr;
}

void GatheredValues::reshard() {
  if (unsharded()) kept_.valid = false;
  GroupValues::reshard();
}

void GatheredValues::forget_whole(bool wanted_next) {
  hide();
  if (wanted_next && kept_.bytes == 0 && gathered())
    slot_->use = AllGatherBuffer::Use::ahead;
  else
    leave_slot();
}

void GatheredValues::release(Stream& stream) {
  GroupValues::release(stream);
  kept_.valid = false;
  if (gathered()) wait_for(*slot_, stream);
  leave_slot();  // prefetched values are of the old version
}

void GatheredValues::wait_released(Stream& stream) {
  if (last_ != nullptr) last_->order_input(stream);
  last_ = nullptr;
  if (place_.offload != nullptr) place_.offload->before(stream);
}

void GatheredValues::list(RegisteredBuffers& buffers) const {
  buffers.add(place_.shards, Channel::fsdp_gather, own_);
  list_slots(place_.shards, buffers);
  if (place_.post_forward_gang == nullptr) return;
  buffers.add(place_.post_forward_gang, Channel::fsdp_gather, kept_.buffer);
  list_slots(place_.post_forward_gang, buffers);
}

void GatheredValues::list_slots(const GangPtr& gang, RegisteredBuffers& buffers) const {
  if (shares_slots_)
    place_.values->list(gang, buffers);
  else
    buffers.add(gang, Channel::fsdp_gather, own_slot_.buffer);
}

void GatheredValues::check_exports() const {
  if (shares_slots_)
    place_.values->check_exports();
  else
    own_slot_.check_exports();
}

void GatheredValues::count(MemoryUse& use) const {
  GroupValues::count(use);
  count_private_rows(use);
  use.gathered += own_slot_.bytes + kept_.bytes;
}

}  // namespace gangway
