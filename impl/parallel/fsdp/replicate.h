// Plain data parallelism (NO_SHARD): every rank has the full values. Gradients are summed over dp_replicate x
// dp_shard x cp in buckets. The reduction of a bucket starts as soon as all of its parameter groups have
// ended their weight half in the last microbatch.
//
// Local gradients lie in the buckets. So do full gradients, which exist from a backward to its reduction. If
// a bucket already has a sum (backward again without zero), only rank 0 keeps it, so that the next reduction
// counts it once.
//
// Thread rule: one thread at a time; collective.
#pragma once

#include <memory>
#include <vector>

#include "parallel/fsdp/group_gradients.h"

namespace gangway {

class BucketGradients;

// The buckets of one replicated model, or of one part that was wrapped separately.
class Buckets {
 public:
  explicit Buckets(Ops& ops) : ops_(&ops) {}

  // Adds parameter groups in the order of the tree, the outer one first. Buckets are filled from the last one
  // to the first, which is the order in which weight halves end.
  void add(BucketGradients& group) { groups_.push_back(&group); }
  void remove(const BucketGradients& group) noexcept;  // the last removal frees the memory, too
  bool empty() const { return groups_.empty(); }
  void allocate();  // local, after all parameter groups were planned; sets the storage of gradients

  // A backward of this parameter group will add gradients.
  void begin(const BucketGradients& group, Stream& stream);
  // The weight half of the last microbatch has ended for this parameter group.
  void done(const BucketGradients& group, Stream& stream);
  void start_leftovers(Stream& stream);
  void finish(Stream& stream);
  void zero(Stream& stream);

  size_t gradient_bytes() const;
  size_t reduce_bytes() const;

 private:
  enum class State : uint8_t { empty, local, in_flight, summed };
  struct Bucket {
    GangPtr gang;  // the ranks over which it is summed
    DType dtype, reduce_dtype;
    size_t bytes = 0;
    std::vector<PackedParameter> parameters;     // with gradient_at as the offset in the bucket
    std::vector<const BucketGradients*> groups;  // the parameter groups that add to it
    size_t waits_for = 0;                        // number of parameter groups that have not ended yet
    State state = State::empty;
    std::shared_ptr<Buffer> memory, reduce_buffer;
    WorkPtr work;
    void hide_full();
    Tensor all() const;
    Tensor reduce_view() const;
  };
  void plan();
  void put(const PackedParameter& parameter, const BucketGradients& group, size_t cap);
  void start(Bucket& bucket, Stream& stream);
  void end(Bucket& bucket, Stream& stream);

  Ops* ops_;
  std::vector<BucketGradients*> groups_;
  std::vector<Bucket> buckets_;
};

// The gradients of one parameter group, which lie in buckets.
class BucketGradients final : public GroupGradients {
 public:
  BucketGradients(const ShardOptions& options, const GroupContext& place, const Packing& packing,
                  std::shared_ptr<Buckets> buckets);
  ~BucketGradients() override { buckets_->remove(*this); }

  const ShardOptions& options() const { return options_; }
  const Packing& packing() const { return packing_; }
  GangPtr gang_of(const Parameter& p) const { return place_.replicas_with(p.grad_partial_axes); }

  void allocate() override;
  void acquire(Stream& stream) override { buckets_->begin(*this, stream); }
  void weight_half_done(bool last, Stream& stream) override;
  void start_leftovers(Stream& stream) override { buckets_->start_leftovers(stream); }
  void finish(Stream& stream) override { buckets_->finish(stream); }
  void zero(Stream& stream) override { buckets_->zero(stream); }
  void count(MemoryUse& use) const override;

 private:
  const ShardOptions& options_;
  const GroupContext& place_;
  const Packing& packing_;
  const std::shared_ptr<Buckets> buckets_;
  const bool first_;  // the first user of the buckets allocates them and counts their memory
};

}  // namespace gangway
