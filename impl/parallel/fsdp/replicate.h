// Plain data parallel (NO_SHARD): every rank holds whole values; gradients are summed over
// dp_replicate x dp_shard x cp in buckets, each started as soon as the last of its units has ended its weight
// half in the last microbatch. Parameters are equal at start because their first values are.
//
// Local gradients are the buckets themselves, and so are full ones, which are there from a backward to its reduction. A bucket that holds a sum already (backward again without
// emptying) keeps it on rank 0 alone, so that the next sum counts it once.
//
// Thread rule: one thread at a time; collective.
#pragma once

#include <memory>
#include <vector>

#include "parallel/fsdp/group_gradients.h"

namespace gangway {

class BucketGradients;

// The buckets of one replicated model (or of one part that was wrapped by itself).
class Buckets {
 public:
  explicit Buckets(Ops& ops) : ops_(&ops) {}

  // Units in order of the tree, one around others first: buckets fill from the last one back, in the order in
  // which weight halves end.
  void add(BucketGradients& unit) { units_.push_back(&unit); }
  void remove(const BucketGradients& unit) noexcept;  // with the last one its memory, too
  bool empty() const { return units_.empty(); }
  void allocate();  // local, when every unit has its plan; gives gradients their storage

  void begin(const BucketGradients& unit, Stream& stream);  // gradients will be added
  void done(const BucketGradients& unit, Stream& stream);   // of the last microbatch
  void start_leftovers(Stream& stream);
  void finish(Stream& stream);
  void zero(Stream& stream);

  size_t gradient_bytes() const;
  size_t reduce_bytes() const;

 private:
  enum class State : uint8_t { empty, local, in_flight, summed };
  struct Bucket {
    GangPtr gang;  // all ranks that have a part of the gradients
    DType dtype, reduce_dtype;
    size_t bytes = 0;
    std::vector<PackedParameter> parameters;    // gradient_at: in the bucket
    std::vector<const BucketGradients*> units;  // that add to it
    size_t waits_for = 0;                       // units, in this microbatch
    State state = State::empty;
    std::shared_ptr<Buffer> memory, reduce_buffer;
    WorkPtr work;
    void hide_full();
    Tensor all() const;
    Tensor reduce_view() const;
  };
  void plan();
  void put(const PackedParameter& parameter, const BucketGradients& unit, size_t cap);
  void start(Bucket& bucket, Stream& stream);
  void end(Bucket& bucket, Stream& stream);

  Ops* ops_;
  std::vector<BucketGradients*> units_;
  std::vector<Bucket> buckets_;
};

// Gradients of a unit that lie in buckets.
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
  const bool first_;  // of its buckets: allocates and counts them
};

}  // namespace gangway
