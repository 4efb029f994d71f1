// The gradients of one parameter group: the memory of full and local gradients, and the reduction of the full
// ones into the local ones.
//
// acquire gives every trainable parameter a full gradient without contents, which the first write sets. The
// reduction starts when the weight half of the parameter group has ended, and finish waits for all
// reductions. A gradient that was not written counts as zero. A reduction sums over dp_replicate x dp_shard x
// cp and adds to the local gradients.
//
// There are two implementations: ShardedGradients here, and BucketGradients in replicate.h.
//
// Thread rule: one thread at a time; all calls that reduce are collective.
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
  virtual void allocate() = 0;  // local; sets Parameter::shard_grad
  virtual void acquire(Stream& stream) = 0;
  // The weight half of a backward has ended. `last` says that it was that of the last microbatch.
  virtual void weight_half_done(bool last, Stream& stream) = 0;
  // Start, and wait for, all remaining reductions: two calls, so that the reductions of all parameter groups
  // overlap. Afterwards all sums are in shard_grad, which is zero where nothing was added.
  virtual void start_leftovers(Stream& stream) = 0;
  virtual void finish(Stream& stream) = 0;
  virtual void zero(Stream& stream) = 0;
  // Of the buffers that this group uses, alone or in turn with others.
  virtual void list(RegisteredBuffers&) const {}
  virtual void check_exports() const {}
  virtual void count(MemoryUse& use) const = 0;
};

// Returns the local gradient, which is zero where nothing was added. INVALID_STATE: the parameter is frozen.
Tensor local_gradient(Parameter& parameter, Ops& ops, Stream& stream);

// Gradients of a sharded parameter group. It owns the full and local accumulators; PendingReductions adds the
// sums of the full ones to the local ones. A reduction is only started here. It ends before its buffer is
// reused, or in finish.
//
// `shares_slots`: full gradients use a buffer of the ring from acquire to the end of the reduction, so every
// microbatch is reduced. `accumulates`: full gradients stay until the last microbatch. `external`: only
// reduce() reduces, and the buffer lives from acquire to drop_full().
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
  void list(RegisteredBuffers& buffers) const override;
  void check_exports() const override;
  void count(MemoryUse& use) const override;

  // Starts the reduction. An external parameter group that acquired nothing reduces zeros.
  void reduce(Stream& stream);
  // External: returns whether full gradients were written, or lent for writing, and wait for reduce() or
  // zero().
  bool has_unreduced() const;
  // External: frees the full gradients, unless their reduction is in flight or has not started.
  void drop_full();

 private:
  bool sharded() const { return place_.shard_ranks() > 1; }
  // Returns whether full and local gradients are two objects. They always are in an external parameter group,
  // because reduce() empties the full ones.
  bool reduces() const;
  bool adds_in_place(const PackedParameter& packed) const;
  bool sums_over_replicas() const;
  void detach_full();  // the parameters have no full gradients until the next acquire
  GangPtr replicas_of(const Parameter& parameter) const;
  ReductionTerm term_of(size_t i, const GradientBuffer& slot, Stream& stream);

  const GroupContext& place_;
  const Packing& packing_;
  const GradientMode mode_;
  std::shared_ptr<Buffer> local_memory_;
  // One of each per parameter, null if it has no gradient. Both are the same object if nothing is reduced.
  std::vector<std::shared_ptr<Accumulator>> full_, local_;
  GradientBuffer own_;
  GradientBuffer* slot_ = nullptr;  // set from acquire to reduce
};

}  // namespace gangway
