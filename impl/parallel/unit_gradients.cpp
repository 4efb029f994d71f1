#include "parallel/unit_gradients.h"

#include "parallel/model.h"

namespace gangway {

Tensor local_gradient(Parameter& p, Ops& ops, Stream& stream) {
  if (!p.trainable || !p.shard_grad)
    fail(Code::invalid_state, "parameter ", p.full_name, " is frozen and has no gradient");
  const bool one_tensor = p.grad.buffer() == p.shard_grad.buffer();
  const bool written = p.shard_grad_written || (one_tensor && p.grad_written);
  if (!written && p.shard_grad.count() != 0) ops.fill(p.shard_grad, 0, stream);
  p.shard_grad_written = true;
  if (one_tensor) p.grad_written = true;
  return p.shard_grad;
}

Tensor full_gradient(Parameter& p, Ops& ops, Stream& stream) {
  if (!p.grad_written && p.grad.count() != 0) ops.fill(p.grad, 0, stream);
  p.grad_written = true;
  return p.grad;
}

ShardGradients::ShardGradients(const UnitPlace& place, const Packing& packing, Ways ways)
    : place_(place), packing_(packing), ways_(ways) {
  if (!reduces()) return;
  const UnitBytes& b = packing_.bytes;
  const size_t wire = packing_.same_wire ? 0 : b.wires;
  const size_t landing = sharded() && !lands_in_place() ? b.landings : 0;
  if (ways_.shares_slots) {
    place_.gradients->need(b.gradients, wire, landing);
    return;
  }
  own_.full_bytes = b.gradients;
  own_.wire_bytes = wire;
  own_.landing_bytes = landing;
}

// Whether the reduction over shards adds to the local gradients by itself: nothing comes after it, and it
// travels in their dtype.
bool ShardGradients::lands_in_place() const {
  return sharded() && place_.replica_ranks() == 1 && packing_.same_wire;
}

void ShardGradients::allocate() {
  local_ = Buffer::allocate(place_.plain(), packing_.bytes.shard_gradients);
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    p.shard_grad = p.grad = Tensor();
    p.grad_written = p.shard_grad_written = false;
    if (!packed.has_gradient) continue;
    p.shard_grad = own_rows(local_, packed.shard_gradient_at, packed.gradient, packed);
    if (!reduces() || packing_.bytes.gradients == 0) p.grad = p.shard_grad;  // whole, and nobody else's
  }
  if (own_.full_bytes == 0) return;
  own_.full_from = place_.reachable();
  own_.landing_from = place_.replicas->allocator();
  if (!ways_.manual) own_.allocate();
}

void ShardGradients::acquire(Stream& stream) {
  if (!reduces() || slot_ != nullptr || packing_.bytes.gradients == 0) return;
  GradientSlot& slot = ways_.shares_slots ? place_.gradients->next() : own_;
  place_.line->settle(slot, stream);
  if (!ways_.manual)
    slot.refresh();
  else if (slot.full == nullptr)
    slot.allocate();
  slot.user = this;
  slot_ = &slot;
  for (const PackedParameter& p : packing_.parameters) {
    if (!wants_gradient(p)) continue;
    p.parameter->grad = Tensor(slot.full, p.gradient_at, p.gradient, p.parameter->shape);
    p.parameter->grad_written = false;
  }
}

void ShardGradients::weight_half_done(bool last, Stream& stream) {
  if (ways_.manual || (ways_.accumulates && !last)) return;
  reduce(stream);
}

void ShardGradients::write_unwritten(Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (p.parameter->grad && !p.parameter->grad_written) place_.ops->fill(p.parameter->grad, 0, stream);
}

void ShardGradients::reduce(Stream& stream) {
  if (ways_.manual) acquire(stream);
  if (slot_ == nullptr) return;
  GradientSlot& slot = *slot_;
  slot_ = nullptr;
  write_unwritten(stream);
  for (const PackedParameter& p : packing_.parameters) {
    if (p.parameter->grad && !packing_.same_wire)
      place_.ops->cast(p.parameter->grad, Tensor(slot.wire, p.wire_at, p.wire, p.parameter->shape), stream);
    p.parameter->grad = Tensor();
  }
  slot.second = nullptr;
  if (sharded()) {
    slot.first = reduce_over_shards(slot, stream);
  } else {
    slot.first = all_reduce(packing_.same_wire ? slot.full : slot.wire, true, stream);
    slot.second = finished_work();
  }
  place_.line->push(slot, stream);
}

void ShardGradients::drop_full() {
  if (slot_ == nullptr && !own_.in_flight) own_.release();
}

WorkPtr ShardGradients::reduce_over_shards(GradientSlot& slot, Stream& stream) {
  const bool direct = lands_in_place();
  std::vector<Collective> span;
  for (const PackedParameter& packed : packing_.parameters) {
    if (!wants_gradient(packed)) continue;
    Parameter& p = *packed.parameter;
    Collective c;
    c.op = CollectiveOp::reduce_scatter;
    c.in = packing_.same_wire ? address(slot.full, packed.gradient_at) : address(slot.wire, packed.wire_at);
    c.out = direct ? p.shard_grad.raw() : address(slot.landing, packed.landing_at);
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
WorkPtr ShardGradients::all_reduce(const std::shared_ptr<Buffer>& buffer, bool whole, Stream& stream) {
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    if (!wants_gradient(p)) continue;
    const size_t at = !whole ? p.landing_at : packing_.same_wire ? p.gradient_at : p.wire_at;
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.in = c.out = address(buffer, at);
    c.count = p.counts[static_cast<size_t>(place_.shard_rank())];
    c.dtype = p.wire;
    c.reduce = Reduce::sum;
    span.push_back(c);
  }
  return place_.replicas->run(Channel::replicate, span, &stream);
}

WorkPtr ShardGradients::reduce_over_replicas(GradientSlot& slot, Stream& stream) {
  if (place_.replica_ranks() == 1) return finished_work();
  return all_reduce(slot.landing, false, stream);
}

Tensor ShardGradients::sum_in(const GradientSlot& slot, const PackedParameter& p) const {
  if (sharded()) return own_rows(slot.landing, p.landing_at, p.wire, p);
  return packing_.same_wire ? own_rows(slot.full, p.gradient_at, p.wire, p)
                            : own_rows(slot.wire, p.wire_at, p.wire, p);
}

void ShardGradients::land(GradientSlot& slot, Stream& stream) {
  if (lands_in_place()) return;
  for (const PackedParameter& packed : packing_.parameters) {
    if (!wants_gradient(packed)) continue;
    Parameter& p = *packed.parameter;
    const Tensor sum = sum_in(slot, packed);
    if (sum.count() != 0 && p.shard_grad_written) place_.ops->add(sum, 1, p.shard_grad, stream);
    if (sum.count() != 0 && !p.shard_grad_written) place_.ops->cast(sum, p.shard_grad, stream);
    p.shard_grad_written = true;
  }
}

void ShardGradients::start_leftovers(Stream& stream) {
  if (!ways_.manual) reduce(stream);
}

void ShardGradients::finish(Stream& stream) {
  place_.line->settle_all(stream);
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    if (!p.shard_grad) continue;
    if (!reduces()) p.shard_grad_written = p.grad_written;  // one tensor
    if (!p.shard_grad_written && p.shard_grad.count() != 0) place_.ops->fill(p.shard_grad, 0, stream);
    p.shard_grad_written = true;
    if (!reduces()) p.grad_written = true;
  }
}

void ShardGradients::zero(Stream& stream) {
  place_.line->settle_all(stream);
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    p.shard_grad_written = false;
    // Full gradients that nobody reduced are dropped, but a caller's own are the caller's.
    if (!ways_.manual || !reduces()) p.grad_written = false;
  }
}

void ShardGradients::count(MemoryUse& use) const {
  use.gradient_shards += packing_.bytes.shard_gradients;
  use.full_gradients += own_.bytes();
}

}  // namespace gangway
