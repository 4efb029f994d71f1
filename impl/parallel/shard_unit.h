// A unit: a set of parameters whose values appear and vanish together (unit_values.h) and whose gradients are
// reduced together (unit_gradients.h). It knows no modules; fully_shard.h calls it around a module,
// shard_group.h on behalf of a foreign runtime.
//
// Thread rule: one thread at a time; unshard, reductions and the update are collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/unit_gradients.h"
#include "parallel/unit_values.h"

namespace gangway {

class Buckets;

enum class UnitRole : uint8_t {
  inner,   // uses the model's rings in turn with the others
  around,  // of other units, or the root: keeps its values after forward and has buffers of its own
  manual,  // a shard group's: buffers of its own; nothing is reduced but by reduce()
};

class ShardUnit {
 public:
  // `buckets`: NO_SHARD, where gradients lie in them; null: local gradients of its own.
  ShardUnit(std::string name, std::vector<NamedParameter> parameters, const ShardOptions& options,
            UnitRole role, std::shared_ptr<Buckets> buckets);
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  const std::string& name() const { return name_; }  // in errors
  const std::vector<NamedParameter>& parameters() const { return named_; }
  const ShardOptions& options() const { return options_; }
  const Packing& packing() const { return packing_; }
  const UnitPlace& place() const { return place_; }
  bool sharded() const { return place_.shard_ranks() > 1; }  // over more than one rank
  bool reshards_after_forward() const;
  bool accumulates_unsharded() const;

  // Where everything will lie: local, takes no memory. Then UnitValues' and UnitGradients' own steps.
  void plan(const UnitPlace& place, DType master);
  UnitValues& values() { return *values_; }
  UnitGradients& gradients() { return *gradients_; }
  void allocate();
  void count(MemoryUse& use) const;
  void forget_plan();

  bool unsharded() const { return values_ != nullptr && values_->unsharded(); }
  void unshard(Stream& stream) { values_->unshard(stream); }
  void reshard();
  // manual: starts the reduction and ends it; the memory of full gradients stays while views of it may be
  // used.
  void reduce(Stream& stream);

 private:
  const std::string name_;
  const std::vector<NamedParameter> named_;
  const ShardOptions options_;
  const UnitRole role_;
  const std::shared_ptr<Buckets> buckets_;
  UnitPlace place_;
  Packing packing_;
  std::unique_ptr<UnitValues> values_;
  std::unique_ptr<UnitGradients> gradients_;
  ShardGradients* manual_ = nullptr;  // gradients_ of a manual unit
};

}  // namespace gangway
