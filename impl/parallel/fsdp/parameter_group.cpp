#include "parallel/fsdp/parameter_group.h"

#include "parallel/fsdp/gathered_values.h"
#include "parallel/fsdp/region_values.h"
#include "parallel/fsdp/replicate.h"
#include "parallel/fsdp/whole_values.h"

namespace gangway {
namespace {

std::unique_ptr<GroupValues> make_values(const std::string& group, const GroupContext& place,
                                         const Packing& packing, bool shares_slots) {
  const bool offloads = place.offload != nullptr;
  if (packing.bytes.full == 0 || (place.shard_ranks() == 1 && !offloads))
    return std::make_unique<WholeValues>(group, place, packing);
  if (!offloads && place.regions && place.shards->shared_memory() != nullptr)
    return std::make_unique<RegionValues>(group, place, packing);
  return std::make_unique<GatheredValues>(group, place, packing, shares_slots);
}

}  // namespace

ParameterGroup::ParameterGroup(std::string name, std::vector<NamedParameter> parameters,
                               const ShardOptions& options, GroupRole role, std::shared_ptr<Buckets> buckets)
    : name_(std::move(name)),
      named_(std::move(parameters)),
      options_(options),
      role_(role),
      buckets_(std::move(buckets)) {}

bool ParameterGroup::reshards_after_forward() const {
  if (options_.reshard_after_forward >= 0) return options_.reshard_after_forward >= 1;
  return options_.strategy == Strategy::full_shard && role_ == GroupRole::child;
}

bool ParameterGroup::accumulates_unsharded() const {
  if (scheduled()) return true;
  if (options_.accumulate_unsharded >= 0) return options_.accumulate_unsharded == 1;
  return options_.strategy != Strategy::full_shard;
}

void ParameterGroup::plan(const GroupContext& place, DType master) {
  place_ = place;
  packing_ = pack(named_, options_, master, place_.axis, place_.shard_ranks(), place_.shard_rank());
  for (const NamedParameter& named : named_) named.parameter->is_offloaded = place_.offload != nullptr;
  const bool child = role_ == GroupRole::child;
  const bool shares_slots =
      scheduled() ? options_.strategy == Strategy::full_shard : child && reshards_after_forward();
  values_ = make_values(name_, place_, packing_, shares_slots);
  if (buckets_ != nullptr) {
    gradients_ = std::make_unique<BucketGradients>(options_, place_, packing_, buckets_);
    return;
  }
  const bool accumulates = accumulates_unsharded();
  const bool external = role_ == GroupRole::external;
  auto own = std::make_unique<ShardedGradients>(
      place_, packing_, ShardedGradients::GradientMode{child && !accumulates, accumulates, external});
  if (external) external_ = own.get();
  gradients_ = std::move(own);
}

void ParameterGroup::forget_plan() {
  values_.reset();
  gradients_.reset();
  external_ = nullptr;
}

void ParameterGroup::allocate() {
  values_->allocate();
  gradients_->allocate();
}

void ParameterGroup::count(MemoryUse& use) const {
  values_->count(use);
  gradients_->count(use);
}

void ParameterGroup::reduce(Stream& stream) {
  GW_CHECK(external_ != nullptr, ==, true);
  external_->reduce(stream);
  external_->finish(stream);
  if (!unsharded()) external_->drop_full();
}

void ParameterGroup::zero_gradients(Stream& stream) {
  gradients_->zero(stream);
  if (external_ != nullptr && !unsharded()) external_->drop_full();
}

void ParameterGroup::reshard_after_forward(bool last, Stream& stream) {
  values_->keep_part(stream);
  values_->drop_whole(last);
}

void ParameterGroup::reshard() {
  values_->reshard();
  if (external_ != nullptr) external_->drop_full();
}

}  // namespace gangway
