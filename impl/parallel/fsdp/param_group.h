// A unit: a set of parameters whose values appear and vanish together (group_values.h) and whose gradients are
// reduced together (group_gradients.h). It knows no modules; fully_sharded_module.h calls it around a module,
// shard_group.h on behalf of a foreign runtime.
//
// Thread rule: one thread at a time; unshard, reductions and the update are collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/fsdp/group_gradients.h"
#include "parallel/fsdp/group_values.h"

namespace gangway {

class Buckets;

enum class GroupRole : uint8_t {
  child,  // shares the model's buffers with the other units
  root,   // the root or around other units: keeps its values after forward, has its own buffers
  stage,  // of a pipeline: the schedule unshards, reshards and reduces; full gradients are summed up to then
  external,  // of a shard group: has its own buffers; only reduce() reduces
};

class ParamGroup {
 public:
  // `buckets`: NO_SHARD, where gradients lie in them; null: local gradients of its own.
  ParamGroup(std::string name, std::vector<NamedParameter> parameters, const ShardOptions& options,
             GroupRole role, std::shared_ptr<Buckets> buckets);
  ParamGroup(const ParamGroup&) = delete;
  ParamGroup& operator=(const ParamGroup&) = delete;

  const std::string& name() const { return name_; }  // in errors
  const std::vector<NamedParameter>& parameters() const { return named_; }
  const ShardOptions& options() const { return options_; }
  const Packing& packing() const { return packing_; }
  const GroupContext& place() const { return place_; }
  bool sharded() const { return place_.shard_ranks() > 1; }  // over more than one rank
  bool scheduled() const { return role_ == GroupRole::stage; }
  bool reshards_after_forward() const;
  bool accumulates_unsharded() const;
  // False: backward goes without the values. They are not gathered for it, and not kept where they are resharded after
  // forward.
  bool read_in_backward() const { return read_in_backward_; }
  void set_read_in_backward(bool read) { read_in_backward_ = read; }

  // Where everything will lie: local, takes no memory. Then GroupValues' and GroupGradients' own steps.
  void plan(const GroupContext& place, DType master);
  GroupValues& values() { return *values_; }
  GroupGradients& gradients() { return *gradients_; }
  void allocate();
  void count(MemoryUse& use) const;
  void forget_plan();

  bool unsharded() const { return values_ != nullptr && values_->unsharded(); }
  void unshard(Stream& stream) { values_->unshard(stream); }
  void reshard();
  // Keeps what options().reshard_after_forward says for backward. `last`: backward begins with it.
  void reshard_after_forward(bool last, Stream& stream);
  // manual: starts the reduction and ends it; the memory of full gradients stays while views of it may be
  // used.
  void reduce(Stream& stream);

 private:
  const std::string name_;
  const std::vector<NamedParameter> named_;
  const ShardOptions options_;
  const GroupRole role_;
  const std::shared_ptr<Buckets> buckets_;
  bool read_in_backward_ = true;
  GroupContext place_;
  Packing packing_;
  std::unique_ptr<GroupValues> values_;
  std::unique_ptr<GroupGradients> gradients_;
  ShardedGradients* external_ = nullptr;  // gradients_ of a manual unit
};

}  // namespace gangway
