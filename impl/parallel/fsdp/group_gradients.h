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
  // are in shard_grad, and what nobody wrote is zero.
  virtual void start_leftovers(Stream& stream) = 0;
  virtual void finish(Stream& stream) = 0;
  virtual void zero(Stream& stream) = 0;
  virtual void count(MemoryUse& use) const = 0;
};

// The local gradient to look at: emptied ones are undefined until they are written, here they are made zero.
Tensor local_gradient(Parameter& parameter, Ops& ops, Stream& stream);
// The full gradient likewise, where there is one.
Tensor full_gradient(Parameter& parameter, Ops& ops, Stream& stream);

// reduce_scatter over shards with each rank's own counts, one span on Channel::fsdp_reduce, then all_reduce
// over replicas on Channel::replicate. Reductions are only started; they end before their slot is used again
// and in finish.
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

  // For PendingReductions: the second half, and adding the sum where that did not come by itself.
  WorkPtr reduce_over_replicas(GradientBuffer& slot, Stream& stream);
  void accumulate(GradientBuffer& slot, Stream& stream);
  Gang& first_gang() const { return sharded() ? *place_.shards : *place_.replicas; }
  Gang& second_gang() const { return *place_.replicas; }
  const std::shared_ptr<Buffer>& local() const { return local_; }

 private:
  bool sharded() const { return place_.shard_ranks() > 1; }
  // Else full and local gradients are one tensor. A external unit's never are: reduce empties the full ones.
  bool reduces() const { return sharded() || place_.replica_ranks() > 1 || mode_.external; }
  bool accumulates_in_place() const;
  void write_unwritten(Stream& stream);
  WorkPtr reduce_over_shards(GradientBuffer& slot, Stream& stream);
  WorkPtr all_reduce(const std::shared_ptr<Buffer>& buffer, bool whole, Stream& stream);
  Tensor sum_in(const GradientBuffer& slot, const PackedParameter& p) const;

  const GroupContext& place_;
  const Packing& packing_;
  const GradientMode mode_;
  std::shared_ptr<Buffer> local_;
  GradientBuffer own_;
  GradientBuffer* slot_ = nullptr;  // from acquire to reduce
};

}  // namespace gangway
