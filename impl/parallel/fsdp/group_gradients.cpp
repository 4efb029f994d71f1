#include "parallel/fsdp/group_gradients.h"

#include <algorithm>
#include <utility>

#include "parallel/memory_use.h"

namespace gangway {

namespace {

// Parameter groups use the buffers in turn, and the padding of each is at other places, where the buffer may
// hold values of the previous user.
void zero_padding(Ops& ops, const std::shared_ptr<Buffer>& buffer, const PackedParameter& p, Stream& stream) {
  if (p.padding() != 0)
    ops.fill(all_pieces(buffer, p.gradient_at, p.gradient, p).slice(0, p.shape.count(), p.pieces()), 0,
             stream);
}

}  // namespace

Tensor local_gradient(Parameter& p, Ops& ops, Stream& stream) {
  if (!p.trainable || p.shard_grad == nullptr)
    fail(Code::invalid_state, "parameter ", p.full_name, " is frozen and has no gradient");
  return p.shard_grad->zero_if_unwritten(ops, stream);
}

ShardedGradients::ShardedGradients(const GroupContext& place, const Packing& packing, GradientMode mode)
    : place_(place), packing_(packing), mode_(mode) {
  if (!reduces()) return;
  const std::vector<PackedParameter>& all = packing_.parameters;
  const bool keeps_sums = sharded() && !std::all_of(all.begin(), all.end(), [&](const PackedParameter& p) {
                            return !p.has_gradient || adds_in_place(p);
                          });
  const GroupBytes& b = packing_.bytes;
  const size_t reduce = packing_.same_reduce_dtype ? 0 : b.reduce_buffers;
  const size_t output = keeps_sums ? b.reduce_outputs : 0;
  if (mode_.shares_slots) {
    place_.gradients->need(b.gradients, reduce, output);
    return;
  }
  own_.full_bytes = b.gradients;
  own_.reduce_bytes = reduce;
  own_.output_bytes = output;
}

bool ShardedGradients::reduces() const {
  return sharded() || mode_.external || place_.offload != nullptr ||
         std::any_of(packing_.parameters.begin(), packing_.parameters.end(),
                     [&](const PackedParameter& p) { return replicas_of(*p.parameter)->size() > 1; });
}

// Returns whether the reduce-scatter can add to the local gradient itself: no all-reduce follows, and it uses
// the dtype of the local gradient.
bool ShardedGradients::adds_in_place(const PackedParameter& packed) const {
  return sharded() && place_.offload == nullptr && packing_.same_reduce_dtype &&
         replicas_of(*packed.parameter)->size() == 1;
}

GangPtr ShardedGradients::replicas_of(const Parameter& parameter) const {
  return place_.replicas_with(parameter.grad_partial_axes);
}

void ShardedGradients::allocate() {
  local_memory_ = zeroed(place_.moved(place_.rest()), packing_.bytes.shard_gradients);  // padding stays zero
  const bool whole = !reduces() || packing_.bytes.gradients == 0;
  for (const PackedParameter& packed : packing_.parameters) {
    Parameter& p = *packed.parameter;
    local_.push_back(!packed.has_gradient ? nullptr
                                          : make_accumulator(own_box(local_memory_, packed.shard_gradient_at,
                                                                     packed.gradient, packed)));
    full_.push_back(!packed.has_gradient ? nullptr : whole ? local_.back() : make_accumulator({}));
    p.shard_grad = local_.back();
    p.grad = whole ? local_.back() : nullptr;
  }
  if (own_.full_bytes == 0) return;
  own_.shards = place_.registers ? place_.shards : nullptr;
  own_.full_from = place_.moved(place_.reachable());
  own_.output_from = place_.moved(place_.replicas->allocator());
  if (!mode_.external) own_.allocate();
}

void ShardedGradients::acquire(Stream& stream) {
  if (!reduces() || slot_ != nullptr || packing_.bytes.gradients == 0) return;
  GradientBuffer& slot = mode_.shares_slots ? place_.gradients->next() : own_;
  place_.reductions->finish_through(slot.reduction, stream);
  if (!mode_.external)
    slot.refresh();
  else if (slot.full == nullptr)
    slot.allocate();
  slot.held = true;
  slot_ = &slot;
  for (size_t i = 0; i < full_.size(); ++i) {
    const PackedParameter& p = packing_.parameters[i];
    if (!wants_gradient(p)) continue;
    zero_padding(*place_.ops, slot.full, p, stream);
    *full_[i] = {whole_view(slot.full, p.gradient_at, p.gradient, p), false};
    p.parameter->grad = full_[i];
  }
}

void ShardedGradients::weight_half_done(bool last, Stream& stream) {
  if (mode_.external || (mode_.accumulates && !last)) return;
  reduce(stream);
}

void ShardedGradients::reduce(Stream& stream) {
  if (mode_.external) acquire(stream);
  if (slot_ == nullptr) return;
  GradientBuffer& slot = *std::exchange(slot_, nullptr);
  std::vector<ReductionTerm> terms;
  for (size_t i = 0; i < full_.size(); ++i) {
    const PackedParameter& p = packing_.parameters[i];
    if (p.parameter->grad != nullptr && wants_gradient(p)) terms.push_back(term_of(i, slot, stream));
  }
  detach_full();
  slot.reduction = place_.reductions->push(*place_.ops, sharded() ? place_.shards : nullptr, std::move(terms),
                                           place_.offload, stream);
  slot.held = false;
}

void ShardedGradients::detach_full() {
  for (size_t i = 0; i < full_.size(); ++i) {
    packing_.parameters[i].parameter->grad = nullptr;
    if (full_[i] != nullptr) *full_[i] = {};  // drops the reference to the buffer
  }
}

bool ShardedGradients::has_unreduced() const {
  return mode_.external && slot_ != nullptr && std::any_of(full_.begin(), full_.end(), [](const auto& full) {
           return full != nullptr && full->written;
         });
}

ReductionTerm ShardedGradients::term_of(size_t i, const GradientBuffer& slot, Stream& stream) {
  const PackedParameter& p = packing_.parameters[i];
  full_[i]->zero_if_unwritten(*place_.ops, stream);
  ReductionTerm term;
  term.full = all_pieces(slot.full, p.gradient_at, p.gradient, p);
  if (!packing_.same_reduce_dtype) {
    const Tensor cast = all_pieces(slot.reduce_buffer, p.reduce_at, p.reduce_dtype, p);
    if (cast.count() != 0) place_.ops->cast(term.full, cast, stream);
    term.full = cast;
  }
  term.local = local_[i];
  term.replicas = replicas_of(*p.parameter);
  term.in_place = adds_in_place(p);
  if (!sharded())
    term.sum = term.full;
  else if (term.in_place)
    term.sum = own_piece(local_memory_, p.shard_gradient_at, p.gradient, p);
  else
    term.sum = own_piece(slot.reduce_output, p.reduce_output_at, p.reduce_dtype, p);
  return term;
}

void ShardedGradients::drop_full() {
  if (slot_ == nullptr && !place_.reductions->in_flight(own_.reduction)) own_.release();
}

void ShardedGradients::start_leftovers(Stream& stream) {
  if (!mode_.external) reduce(stream);
}

void ShardedGradients::finish(Stream& stream) {
  place_.reductions->finish_all(stream);
  for (const std::shared_ptr<Accumulator>& local : local_)
    if (local != nullptr) local->zero_if_unwritten(*place_.ops, stream);
}

void ShardedGradients::zero(Stream& stream) {
  place_.reductions->finish_all(stream);
  for (size_t i = 0; i < local_.size(); ++i) {
    if (local_[i] == nullptr) continue;
    local_[i]->written = false;
    full_[i]->written = false;
  }
  if (mode_.external && slot_ != nullptr) {
    std::exchange(slot_, nullptr)->held = false;
    detach_full();
  }
}

void ShardedGradients::list(RegisteredBuffers& buffers) const {
  size_t sums = 0;
  for (const PackedParameter& p : packing_.parameters)
    if (wants_gradient(p) && adds_in_place(p)) sums += (p.piece_bytes(p.gradient) + 255) / 256 * 256;
  if (sums != 0) buffers.add(place_.shards, Channel::fsdp_reduce, local_memory_, sums);
  if (mode_.shares_slots)
    place_.gradients->list(buffers);
  else
    own_.list(buffers);
  if (!sums_over_replicas()) return;
  if (mode_.shares_slots)
    place_.gradients->list_outputs(place_.replicas, buffers);
  else
    own_.list_outputs(place_.replicas, buffers);
}

// A gradient that is partial over other axes is summed over a gang that has them, too. Its ranks may pack
// other parameters of the group differently, so that their buffers would be registered with other offsets.
bool ShardedGradients::sums_over_replicas() const {
  return std::any_of(packing_.parameters.begin(), packing_.parameters.end(), [&](const PackedParameter& p) {
    return wants_gradient(p) && !adds_in_place(p) && place_.replicas->size() > 1 &&
           replicas_of(*p.parameter) == place_.replicas;
  });
}

void ShardedGradients::check_exports() const {
  if (mode_.shares_slots)
    place_.gradients->check_exports(*place_.reductions);
  else
    own_.check_exports(*place_.reductions);
}

void ShardedGradients::count(MemoryUse& use) const {
  (place_.offload != nullptr ? use.host : use.gradient_shards) += packing_.bytes.shard_gradients;
  use.full_gradients += own_.bytes();
}

}  // namespace gangway
