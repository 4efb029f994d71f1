// Reductions of gradients from full to local accumulators: what is in flight, and in which order it ends.
//
// One reduction sums the gradients of one group in two halves: a reduce-scatter over the shards into own pieces, one
// span on Channel::fsdp_reduce, then an all-reduce of the pieces over the ranks that hold equal ones, on
// Channel::replicate. A group that is not sharded has the second half only. The sum is added to the local accumulator.
//
// Thread rule: one thread at a time; all but the facts and give_up are collective.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "gang/gang.h"
#include "nn/accumulator.h"
#include "parallel/fsdp/side_stream.h"

namespace gangway {

// The gradient of one parameter on its way. The tensors are flat, equal on all ranks in size, and keep their memory.
struct ReductionTerm {
  Tensor full;  // all pieces, as they travel
  Tensor
      sum;  // own piece. The same memory as full without shards; the local piece itself where nothing comes after
  std::shared_ptr<Accumulator> local;
  GangPtr replicas;       // the ranks whose pieces are summed in the second half
  bool in_place = false;  // the first half adds to the local gradient itself
};

class PendingReductions {
 public:
  // Starts a reduction over `shards` (null: not sharded); gives its ticket. The second half of each starts with the
  // next push, after its first half, so program order alone decides what is launched when. With `side` the sums are added
  // on that stream as soon as they are launched, beside compute: local gradients rest on the host.
  uint64_t push(Ops& ops, GangPtr shards, std::vector<ReductionTerm> terms, SideStream* side, Stream& stream);
  bool in_flight(uint64_t ticket) const { return ticket > ended_; }
  // Later work of the stream comes after everything up to `ticket`: sums are in the local accumulators, and no peer
  // reads what was pushed.
  void finish_through(uint64_t ticket, Stream& stream);
  void finish_all(Stream& stream);
  // Before all groups go: what the reductions read and write stays until they are over on all ranks.
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
    std::unique_ptr<Event> added;  // on the side stream; null: not yet
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
