#include "parallel/shard_unit.h"

#include "parallel/replicate.h"

namespace gangway {

ShardUnit::ShardUnit(std::string name, std::vector<NamedParameter> parameters, const ShardOptions& options,
                     UnitRole role, std::shared_ptr<Buckets> buckets)
    : name_(std::move(name)),
      named_(std::move(parameters)),
      options_(options),
      role_(role),
      buckets_(std::move(buckets)) {}

bool ShardUnit::reshards_after_forward() const {
  if (options_.reshard_after_forward >= 0) return options_.reshard_after_forward == 1;
  return options_.strategy == Strategy::full_shard && role_ == UnitRole::inner;
}

bool ShardUnit::accumulates_unsharded() const {
  if (options_.accumulate_unsharded >= 0) return options_.accumulate_unsharded == 1;
  return options_.strategy != Strategy::full_shard;
}

void ShardUnit::plan(const UnitPlace& place, DType master) {
  place_ = place;
  packing_ = pack(named_, options_, master, place_.axis, place_.shard_ranks(), place_.shard_rank());
  const bool inner = role_ == UnitRole::inner;
  values_ = std::make_unique<UnitValues>(name_, place_, packing_, inner && reshards_after_forward());
  if (buckets_ != nullptr) {
    gradients_ = std::make_unique<BucketGradients>(options_, packing_, buckets_);
    return;
  }
  const bool accumulates = accumulates_unsharded();
  const bool manual = role_ == UnitRole::manual;
  auto own = std::make_unique<ShardGradients>(
      place_, packing_, ShardGradients::Ways{inner && !accumulates, accumulates, manual});
  if (manual) manual_ = own.get();
  gradients_ = std::move(own);
}

void ShardUnit::forget_plan() {
  values_.reset();
  gradients_.reset();
  manual_ = nullptr;
}

void ShardUnit::allocate() {
  values_->allocate();
  gradients_->allocate();
}

void ShardUnit::count(MemoryUse& use) const {
  values_->count(use);
  gradients_->count(use);
}

void ShardUnit::reduce(Stream& stream) {
  GW_CHECK(manual_ != nullptr, ==, true);
  manual_->reduce(stream);
  manual_->finish(stream);
  if (!unsharded()) manual_->drop_full();
}

void ShardUnit::reshard() {
  values_->reshard();
  if (manual_ != nullptr) manual_->drop_full();
}

}  // namespace gangway
