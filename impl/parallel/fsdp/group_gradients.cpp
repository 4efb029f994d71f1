#include "parallel/fsdp/group_gradients.h"

#include "parallel/memory_use.h"

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

ShardedGradients::ShardedGradients(const GroupContext& place, const Packing& packing, GradientMode mode)
    : place_(place), packing_(packing), mode_(mode) {
  if (!reduces()) return;
  const GroupBytes& b = packing_.bytes;
  const size_t reduce = packing_.same_reduce_dtype ? 0 : b.reduce_buffers;
  const size_t output = sharded() && !accumulates_in_place() ? b.reduce_outputs : 0;
  if (mode_.shares_slots) {
    place_.gradients->need(b.gradients, reduce, output);
    return;
  }
  own_.full_bytes = b.gradients;
  own_.reduce_bytes = reduce;
  own_.output_bytes = output;
}

// Whether the reduction over shards adds to the local gradients by itself: nothing comes after it, and it
// travels in their dtype.
bool ShardedGradients::accumulates_in_place() const {
  return sharded() && place_.replica_ranks() == 1 && packing_.same_reduce_dtype;
}

void ShardedGradients::allocate() {
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
  own_.output_from = place_.replicas->allocator();
  if (!mode_.external) own_.allocate();
}

void ShardedGradients::acquire(Stream& stream) {
  if (!reduces() || slot_ != nullptr || packing_.bytes.gradients == 0) return;
  GradientBuffer& slot = mode_.shares_slots ? place_.gradients->next() : own_;
  place_.line->finish_through(slot, stream);
  if (!mode_.external)
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

void ShardedGradients::weight_half_done(bool last, Stream& stream) {
  if (mode_.external || (mode_.accumulates && !last)) return;
  reduce(stream);
}

void ShardedGradients::write_unwritten(Stream& stream) {
  for (const PackedParameter& p : packing_.parameters)
    if (p.parameter->grad && !p.parameter->grad_written) place_.ops->fill(p.parameter->grad, 0, stream);
}

void ShardedGradients::reduce(Stream& stream) {
  if (mode_.external) acquire(stream);
  if (slot_ == nullptr) return;
  GradientBuffer& slot = *slot_;
  slot_ = nullptr;
  write_unwritten(stream);
  for (const PackedParameter& p : packing_.parameters) {
    if (p.parameter->grad && !packing_.same_reduce_dtype)
      place_.ops->cast(p.parameter->grad,
                       Tensor(slot.reduce_buffer, p.reduce_at, p.reduce_dtype, p.parameter->shape), stream);
    p.parameter->grad = Tensor();
  }
  slot.second = nullptr;
  if (sharded()) {
    slot.first = reduce_over_shards(slot, stream);
  } else {
    slot.first = all_reduce(packing_.same_reduce_dtype ? slot.full : slot.reduce_buffer, true, stream);
    slot.second = finished_work();
  }
  place_.line->push(slot, stream);
}

void ShardedGradients::drop_full() {
  if (slot_ == nullptr && !own_.in_flight) own_.release();
}

WorkPtr ShardedGradients::reduce_over_shards(GradientBuffer& slot, Stream& stream) {
  const bool direct = accumulates_in_place();
  std::vector<Collective> span;
  for (const PackedParameter& packed : packing_.parameters) {
    if (!wants_gradient(packed)) continue;
    Parameter& p = *packed.parameter;
    Collective c;
    c.op = CollectiveOp::reduce_scatter;
    c.in = packing_.same_reduce_dtype ? address(slot.full, packed.gradient_at)
                                      : address(slot.reduce_buffer, packed.reduce_at);
    c.out = direct ? p.shard_grad.raw() : address(slot.reduce_output, packed.reduce_output_at);
    c.count = packed.counts[static_cast<size_t>(place_.shard_rank())];
    c.counts = packed.counts.data();
    c.dtype = packed.reduce_dtype;
    c.reduce = Reduce::sum;
    c.accumulate = direct && p.shard_grad_written;
    c.async_input = true;
    span.push_back(c);
    if (direct) p.shard_grad_written = true;
  }
  return place_.shards->run(Channel::fsdp_reduce, span, &stream);
}

// In place; `whole`: whole gradients, else own rows.
WorkPtr ShardedGradients::all_reduce(const std::shared_ptr<Buffer>& buffer, bool whole, Stream& stream) {
  std::vector<Collective> span;
  for (const PackedParameter& p : packing_.parameters) {
    if (!wants_gradient(p)) continue;
    const size_t at = !whole ? p.reduce_output_at : packing_.same_reduce_dtype ? p.gradient_at : p.reduce_at;
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.in = c.out = address(buffer, at);
    c.count = p.counts[static_cast<size_t>(place_.shard_rank())];
    c.dtype = p.reduce_dtype;
    c.reduce = Reduce::sum;
    span.push_back(c);
  }
  return place_.replicas->run(Channel::replicate, span, &stream);
}

WorkPtr ShardedGradients::reduce_over_replicas(GradientBuffer& slot, Stream& stream) {
  if (place_.replica_ranks() == 1) return finished_work();
  return all_reduce(slot.reduce_output, false, stream);
}

Tensor ShardedGradients::sum_in(const GradientBuffer& slot, const PackedParameter& p) const {
  if (sharded()) return own_rows(slot.reduce_output, p.reduce_output_at, p.reduce_dtype, p);
  return packing_.same_reduce_dtype ? own_rows(slot.full, p.gradient_at, p.reduce_dtype, p)
                                    : own_rows(slot.reduce_buffer, p.reduce_at, p.reduce_dtype, p);
}

void ShardedGradients::accumulate(GradientBuffer& slot, Stream& stream) {
  if (accumulates_in_place()) return;
  for (const PackedParameter& packed : packing_.parameters) {
    if (!wants_gradient(packed)) continue;
    Parameter& p = *packed.parameter;
    const Tensor sum = sum_in(slot, packed);
    if (sum.count() != 0 && p.shard_grad_written) place_.ops->add(sum, 1, p.shard_grad, stream);
    if (sum.count() != 0 && !p.shard_grad_written) place_.ops->cast(sum, p.shard_grad, stream);
    p.shard_grad_written = true;
  }
}

void ShardedGradients::start_leftovers(Stream& stream) {
  if (!mode_.external) reduce(stream);
}

void ShardedGradients::finish(Stream& stream) {
  place_.line->finish_all(stream);
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    if (!p.shard_grad) continue;
    if (!reduces()) p.shard_grad_written = p.grad_written;  // one tensor
    if (!p.shard_grad_written && p.shard_grad.count() != 0) place_.ops->fill(p.shard_grad, 0, stream);
    p.shard_grad_written = true;
    if (!reduces()) p.grad_written = true;
  }
}

void ShardedGradients::zero(Stream& stream) {
  place_.line->finish_all(stream);
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    p.shard_grad_written = false;
    // Full gradients that nobody reduced are dropped, but a caller's own are the caller's.
    if (!mode_.external || !reduces()) p.grad_written = false;
  }
}

void ShardedGradients::count(MemoryUse& use) const {
  use.gradient_shards += packing_.bytes.shard_gradients;
  use.full_gradients += own_.bytes();
}

}  // namespace gangway
