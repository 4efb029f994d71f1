#include "parallel/fsdp/pending_reductions.h"

#include <algorithm>
#include <utility>

namespace gangway {
namespace {

Collective sum_of(CollectiveOp op, const Tensor& in, const Tensor& out) {
  Collective c;
  c.op = op;
  c.in = in.raw();
  c.out = out.raw();
  c.count = static_cast<size_t>(out.count());
  c.dtype = in.dtype();
  c.reduce = Reduce::sum;
  return c;
}

WorkPtr reduce_over_shards(Gang& shards, const std::vector<ReductionTerm>& terms, Stream& stream) {
  std::vector<Collective> span;
  for (const ReductionTerm& term : terms) {
    Collective c = sum_of(CollectiveOp::reduce_scatter, term.full, term.sum);
    c.accumulate = term.in_place && term.local->target().accumulate;
    c.async_input = true;
    span.push_back(c);
  }
  return shards.run(Channel::fsdp_reduce, span, &stream);
}

// Returns the sum without its padding, in the shape of the local gradient.
Tensor visible(const ReductionTerm& term) {
  const Tensor& local = term.local->tensor;
  return term.sum.slice(0, 0, local.count()).reshape(local.shape());
}

}  // namespace

uint64_t PendingReductions::push(Ops& ops, GangPtr shards, std::vector<ReductionTerm> terms, SideStream* side,
                                 Stream& stream) {
  Reduction reduction{&ops, std::move(terms), {}, {}, side, false, nullptr};
  if (shards != nullptr) {
    WorkPtr work = reduce_over_shards(*shards, reduction.terms, stream);
    reduction.first.push_back({std::move(shards), std::move(work)});
  }
  for (Reduction& older : line_) {
    start_second(older, stream);
    if (older.side != nullptr) add_beside(older, stream);
  }
  if (reduction.first.empty()) start_second(reduction, stream);
  line_.push_back(std::move(reduction));
  return ++started_;
}

void PendingReductions::finish_through(uint64_t ticket, Stream& stream) {
  while (in_flight(ticket)) finish_oldest(stream);
}

void PendingReductions::finish_all(Stream& stream) {
  // Wait for all first halves before any second half, because peers may wait for this rank's part of a later
  // one.
  for (const Reduction& reduction : line_) order(reduction.first, stream);
  while (!line_.empty()) finish_oldest(stream);
}

void PendingReductions::give_up() noexcept {
  for (const Reduction& reduction : line_)
    for (const std::vector<Half>* halves : {&reduction.first, &reduction.second})
      for (const Half& half : *halves)
        for (const ReductionTerm& term : reduction.terms)
          for (const Tensor& tensor : {term.full, term.sum})
            half.gang->owner()->works()->keep(half.work, tensor.buffer());
  line_.clear();
  ended_ = started_;
}

void PendingReductions::order(const std::vector<Half>& halves, Stream& stream) {
  for (const Half& half : halves) half.work->order(stream);
}

void PendingReductions::order_input(const std::vector<Half>& halves, Stream& stream) {
  for (const Half& half : halves) half.work->order_input(stream);
}

// Starts one batch of all-reduces for each gang, in the order of the terms, which is the same on all ranks.
void PendingReductions::start_second(Reduction& reduction, Stream& stream) {
  if (std::exchange(reduction.second_started, true)) return;
  std::vector<GangPtr> gangs;
  for (const ReductionTerm& term : reduction.terms)
    if (term.replicas->size() > 1 && std::find(gangs.begin(), gangs.end(), term.replicas) == gangs.end())
      gangs.push_back(term.replicas);
  if (!gangs.empty()) order(reduction.first, stream);
  for (const GangPtr& gang : gangs) {
    std::vector<Collective> span;
    for (const ReductionTerm& term : reduction.terms)
      if (term.replicas == gang) span.push_back(sum_of(CollectiveOp::all_reduce, term.sum, term.sum));
    reduction.second.push_back({gang, gang->run(Channel::replicate, span, &stream)});
  }
}

void PendingReductions::add_sums(const Reduction& reduction, Stream& stream) {
  order(reduction.second, stream);
  for (const ReductionTerm& term : reduction.terms)
    if (!term.in_place) term.local->add(*reduction.ops, visible(term), stream);
  order_input(reduction.first, stream);
  order_input(reduction.second, stream);
}

// Adds the sums on the side stream, once. Without a collective `stream` computes the sums, so the side stream
// waits for it.
void PendingReductions::add_beside(Reduction& reduction, Stream& stream) {
  if (reduction.added != nullptr) return;
  const bool here = reduction.first.empty() && reduction.second.empty();
  Stream& side = here ? reduction.side->after(stream) : reduction.side->stream();
  order(reduction.first, side);
  add_sums(reduction, side);
  reduction.added = reduction.ops->device().make_event();
  reduction.added->record(side);
}

void PendingReductions::finish_oldest(Stream& stream) {
  Reduction& oldest = line_.front();
  order(oldest.first, stream);
  start_second(oldest, stream);
  if (oldest.side != nullptr) {
    add_beside(oldest, stream);
    stream.wait(*oldest.added);
  } else {
    add_sums(oldest, stream);
  }
  line_.pop_front();
  ++ended_;
}

}  // namespace gangway
