// Full gradients of a unit and their reduction.
#include "parallel/shard_unit.h"

namespace gangway {
namespace {

void* at(const std::shared_ptr<Buffer>& buffer, size_t offset) {
  return buffer->data() == nullptr ? nullptr : static_cast<char*>(buffer->data()) + offset;
}

}  // namespace

// Whether the reduction over shards adds to the local gradients by itself: nothing comes after it, and it travels in
// their dtype.
bool ShardUnit::lands_in_place() const {
  return sharded() && place_.replica_ranks() == 1 && packing_.same_wire;
}

void ShardUnit::acquire_gradients(Stream& stream) {
  if (!reduces() || gradient_slot_ != nullptr || packing_.bytes.gradients == 0) return;
  GradientSlot& slot = own_gradients_.full_bytes != 0 ? own_gradients_ : gradient_ring_->next();
  line_->settle(slot, stream);
  slot.refresh();
  slot.user = this;
  gradient_slot_ = &slot;
  for (const PackedParameter& p : packing_.parameters) {
    if (!wants_gradient(p)) continue;
    p.parameter->grad = Tensor(slot.full, p.gradient_at, p.gradient, p.parameter->shape);
    p.parameter->grad_written = false;
  }
}

void ShardUnit::weight_half_done(bool last, Stream& stream) {
  if (manual_ || (accumulates_ && !last)) return;
  reduce(stream);
}

void ShardUnit::write_unwritten(Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (p.parameter->grad && !p.parameter->grad_written) place_.ops->fill(p.parameter->grad, 0, stream);
}

void ShardUnit::reduce(Stream& stream) {
  if (manual_) acquire_gradients(stream);
  if (gradient_slot_ == nullptr) return;
  GradientSlot& slot = *gradient_slot_;
  gradient_slot_ = nullptr;
  write_unwritten(stream);
  if (!packing_.same_wire)
    for (const PackedParameter& p : packing_.parameters)
      if (p.parameter->grad)
        place_.ops->cast(p.parameter->grad, Tensor(slot.wire, p.wire_at, p.wire, p.parameter->shape), stream);
  for (const PackedParameter& p : packing_.parameters) p.parameter->grad = Tensor();
  slot.second = nullptr;
  if (sharded()) {
    slot.first = start_shard_reduction(slot, stream);
  } else {
    slot.first = all_reduce(packing_.same_wire ? slot.full : slot.wire, true, stream);
    slot.second = finished_work();
  }
  line_->push(slot, stream);
}

WorkPtr ShardUnit::start_shard_reduction(GradientSlot& slot, Stream& stream) {
  const bool direct = lands_in_place();
  std::vector<Collective> span;
  for (const PackedParameter& packed : packing_.parameters) {
    if (!wants_gradient(packed)) continue;
    Parameter& p = *packed.parameter;
    Collective c;
    c.op = CollectiveOp::reduce_scatter;
    c.in = packing_.same_wire ? at(slot.full, packed.gradient_at) : at(slot.wire, packed.wire_at);
    c.out = direct ? p.shard_grad.raw() : at(slot.landing, packed.landing_at);
    c.count = packed.counts[static_cast<size_t>(place_.shard_rank())];
    c.counts = packed.counts.data();
    c.dtype = packed.wire;
    c.reduce = Reduce::sum;
    c.accumulate = direct && p.shard_grad_written;
    c.borrow = true;
    span.push_back(c);
    if (direct) p.shard_grad_written = true;
  }
  return place_.shards->run(Channel::fsdp_reduce, span, &stream);
}

// In place; `whole`: whole gradients, else own rows.
WorkPtr ShardUnit::all_reduce(const std::shared_ptr<Buffer>& buffer, bool whole, Stream& stream) {
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    if (!wants_gradient(p)) continue;
    Collective c;
    c.op = CollectiveOp::all_reduce;
    const size_t offset = !whole ? p.landing_at : packing_.same_wire ? p.gradient_at : p.wire_at;
    c.in = c.out = at(buffer, offset);
    c.count = p.counts[static_cast<size_t>(place_.shard_rank())];
    c.dtype = p.wire;
    c.reduce = Reduce::sum;
    span.push_back(c);
  }
  return place_.replicas->run(Channel::replicate, span, &stream);
}

WorkPtr ShardUnit::reduce_over_replicas(GradientSlot& slot, Stream& stream) {
  if (place_.replica_ranks() == 1) return finished_work();
  return all_reduce(slot.landing, false, stream);
}

void ShardUnit::land(GradientSlot& slot, Stream& stream) {
  if (lands_in_place()) return;
  for (const PackedParameter& packed : packing_.parameters) {
    if (!wants_gradient(packed)) continue;
    Parameter& p = *packed.parameter;
    const Tensor sum = sharded() ? own_rows(slot.landing, packed.landing_at, packed.wire, packed)
                       : packing_.same_wire ? own_rows(slot.full, packed.gradient_at, packed.wire, packed)
                                            : own_rows(slot.wire, packed.wire_at, packed.wire, packed);
    if (sum.count() == 0) continue;
    if (p.shard_grad_written)
      place_.ops->add(sum, 1, p.shard_grad, stream);
    else
      place_.ops->cast(sum, p.shard_grad, stream);
    p.shard_grad_written = true;
  }
}

void ShardUnit::zero_unwritten(Stream& stream) {
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    if (!p.shard_grad) continue;
    if (!reduces()) p.shard_grad_written = p.grad_written;
    if (p.shard_grad_written) continue;
    if (p.shard_grad.count() != 0) place_.ops->fill(p.shard_grad, 0, stream);
    p.shard_grad_written = true;
    if (!reduces()) p.grad_written = true;
  }
}

void ShardUnit::reduce_leftovers(Stream& stream) {
  if (!manual_) reduce(stream);
}

void ShardUnit::finish_gradients(Stream& stream) {
  line_->settle_all(stream);
  zero_unwritten(stream);
}

void ShardUnit::zero_gradients(Stream& stream) {
  line_->settle_all(stream);
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    p.shard_grad_written = false;
    // Full gradients that nobody reduced are dropped; on a rank alone they are the local ones.
    if (!manual_ || !reduces()) p.grad_written = false;
  }
}

}  // namespace gangway
