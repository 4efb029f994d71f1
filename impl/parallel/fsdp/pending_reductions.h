// The reductions of gradients that are in flight, in the order in which they were started.
//
// One reduction sums the full gradients of one parameter group in two halves. The first half is a
// reduce-scatter over the shards into own pieces, in one batch on Channel::fsdp_reduce. The second half is an
// all-reduce of the pieces over the ranks that hold equal shards, on Channel::replicate. A parameter group
// that is not sharded has only the second half. The sum is then added to the local accumulator.
//
// Thread rule: one thread at a time; collective, except in_flight and give_up.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "gang/gang.h"
#include "nn/accumulator.h"
#include "parallel/fsdp/side_stream.h"

namespace gangway {

// The reduction of one parameter's gradient. The tensors are flat, have equal sizes on all ranks, and keep
// their memory alive.
struct ReductionTerm {
  Tensor full;  // all pieces, in the dtype of the reduction
  // This rank's piece of the sum. With `in_place` it is the local gradient itself. If the group is not
  // sharded, it is in the memory of `full`.
  Tensor sum;
  std::shared_ptr<Accumulator> local;
  GangPtr replicas;       // the ranks over which the second half sums
  bool in_place = false;  // the first half adds to the local gradient, so that no addition follows
};

class PendingReductions {
 public:
  // Starts a reduction over `shards` (null: not sharded) and returns its ticket. The second half of a
  // reduction starts with the next push, so the order of calls alone decides the order of collectives, which
  // is the same on all ranks. With `side` (local gradients on the host) the sums are added on that stream,
  // beside compute.
  uint64_t push(Ops& ops, GangPtr shards, std::vector<ReductionTerm> terms, SideStream* side, Stream& stream);
  bool in_flight(uint64_t ticket) const { return ticket > ended_; }
  // Makes later work of `stream` wait for all reductions up to `ticket`: then the sums are in the local
  // accumulators, and no peer reads the full gradients any more.
  void finish_through(uint64_t ticket, Stream& stream);
  void finish_all(Stream& stream);
  // Drops all reductions, before the parameter groups are destroyed. The memory that they use stays allocated
  // until they have ended on all ranks.
  void give_up() noexcept;

 private:
  struct Half {
    GangPtr gang;
    WorkPtr work;
  };
  struct Reduction {
    Ops* ops;
    std::vector<ReductionTerm> terms;
    std::vector<Half> first, second;
    SideStream* side = nullptr;
    bool second_started = false;
    std::unique_ptr<Event> added;  // the addition on the side stream; null: not started yet
  };
  static void order(const std::vector<Half>& halves, Stream& stream);
  static void order_input(const std::vector<Half>& halves, Stream& stream);
  static void start_second(Reduction& reduction, Stream& stream);
  static void add_beside(Reduction& reduction, Stream& stream);
  static void add_sums(const Reduction& reduction, Stream& stream);
  void finish_oldest(Stream& stream);

  std::deque<Reduction> line_;  // oldest first
  uint64_t started_ = 0, ended_ = 0;
};

}  // namespace gangway
