// The gradients of one unit: where full and local ones lie and how the former are summed into the latter.
//
// acquire gives every trainable parameter a full gradient that is to be written first; when the unit's weight
// half ended, its reduction starts; finish ends all. What was not written counts as zero. Gradients are sums
// over dp_replicate x dp_shard x cp, added to the local ones.
//
// Two kinds: ShardedGradients here, BucketGradients in replicate.h.
//
// Thread rule: one thread at a time; what reduces is collective.
#pragma once

#include <memory>

#include "parallel/fsdp/group_context.h"
#include "parallel/fsdp/packing.h"
#include "parallel/fsdp/pending_reductions.h"

namespace gangway {

struct MemoryUse;

class GroupGradients {
 public:
  virtual ~GroupGradients() = default;
  virtual void allocate() = 0;  // local; gives parameters their local gradients
  virtual void acquire(Stream& stream) = 0;
  // The weight half ended; `last`: of the last microbatch.
  virtual void weight_half_done(bool last, Stream& stream) = 0;
  // All that is left, in two halves so that the reductions of all units travel together; afterwards all sums
  // are in shard_grad, which is zero where nothing was added.
  virtual void start_leftovers(Stream& stream) = 0;
  virtual void finish(Stream& stream) = 0;
  virtual void zero(Stream& stream) = 0;
  virtual void count(MemoryUse& use) const = 0;
};

// The local gradient to look at, zero where nothing was added. INVALID_STATE: the parameter is frozen.
Tensor local_gradient(Parameter& parameter, Ops& ops, Stream& stream);

// Owns the accumulators, full and local; PendingReductions moves the sums from the former into the latter. Reductions
// are only started; they end before their buffer is used again and in finish.
//
// `shares_slots`: full gradients lie in the ring from acquire to the reduction's end, so every microbatch is
// reduced. `accumulates`: they stay until the last microbatch. `external`: only reduce() reduces, and the
// buffer lives from acquire to drop_full().
class ShardedGradients final : public GroupGradients {
 public:
  struct GradientMode {
    bool shares_slots = true, accumulates = false, external = false;
  };
  ShardedGradients(const GroupContext& place, const Packing& packing, GradientMode mode);

  void allocate() override;
  void acquire(Stream& stream) override;
  void weight_half_done(bool last, Stream& stream) override;
  void start_leftovers(Stream& stream) override;
  void finish(Stream& stream) override;
  void zero(Stream& stream) override;
  void count(MemoryUse& use) const override;

  void reduce(Stream& stream);  // starts; external: of zeros if nothing was acquired
  // external: gives the full gradients' memory back, unless they wait for their reduction.
  void drop_full();

 private:
  bool sharded() const { return place_.shard_ranks() > 1; }
  // Else full and local gradients are one object. An external unit's never are: reduce empties the full ones.
  bool reduces() const;
  bool adds_in_place(const PackedParameter& packed) const;
  GangPtr replicas_of(const Parameter& parameter) const;
  ReductionTerm term_of(size_t i, const GradientBuffer& slot, Stream& stream);

  const GroupContext& place_;
  const Packing& packing_;
  const GradientMode mode_;
  std::shared_ptr<Buffer> local_memory_;
  // One per parameter; null where it has no gradient. One object where nothing is reduced.
  std::vector<std::shared_ptr<Accumulator>> full_, local_;
  GradientBuffer own_;
  GradientBuffer* slot_ = nullptr;  // from acquire to reduce
};

}  // namespace gangway
