// A parameter group: a set of parameters that are unsharded and resharded together (group_values.h) and whose
// gradients are reduced together (group_gradients.h). It knows no modules: fully_sharded_module.h calls it
// around a module, and shard_group.h for a runtime that computes by itself.
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
  child,     // shares the model's buffers with the other parameter groups
  root,      // the root or around other parameter groups: keeps its values after forward, has its own buffers
  stage,     // in a pipeline stage: the schedule unshards, reshards and reduces the accumulated gradients
  external,  // in a shard group: has its own buffers, and only reduce() reduces
};

class ParameterGroup {
 public:
  // `buckets` holds the gradients of a NO_SHARD group; null: the parameter group has gradients of its own.
  ParameterGroup(std::string name, std::vector<NamedParameter> parameters, const ShardOptions& options,
                 GroupRole role, std::shared_ptr<Buckets> buckets);
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  const std::string& name() const { return name_; }  // for errors
  const std::vector<NamedParameter>& parameters() const { return named_; }
  const ShardOptions& options() const { return options_; }
  const Packing& packing() const { return packing_; }
  const GroupContext& place() const { return place_; }
  bool sharded() const { return place_.shard_ranks() > 1; }  // over more than one rank
  bool scheduled() const { return role_ == GroupRole::stage; }
  bool external() const { return role_ == GroupRole::external; }
  bool reshards_after_forward() const;
  bool accumulates_unsharded() const;
  // Whether backward reads the values. If it does not, they are not gathered for backward, and no part of
  // them is kept after forward.
  bool read_in_backward() const { return read_in_backward_; }
  void set_read_in_backward(bool read) { read_in_backward_ = read; }

  // Computes the layout of all memory. Local; allocates nothing. The steps of GroupValues and GroupGradients
  // follow.
  void plan(const GroupContext& place, DType master);
  GroupValues& values() { return *values_; }
  GroupGradients& gradients() { return *gradients_; }
  void allocate();
  void count(MemoryUse& use) const;
  void forget_plan();

  bool unsharded() const { return values_ != nullptr && values_->unsharded(); }
  void unshard(Stream& stream) { values_->unshard(stream); }
  void reshard();
  // Reshards after forward, and keeps for backward the part that options().reshard_after_forward asks for.
  // `last` says that backward begins with this parameter group, so that its values count as prefetched.
  void reshard_after_forward(bool last, Stream& stream);
  // Empties the gradients, full ones that were not reduced, too.
  void zero_gradients(Stream& stream);
  // External only: returns whether full gradients wait for reduce().
  bool has_unreduced() const { return external_ != nullptr && external_->has_unreduced(); }
  // External only: reduces and waits for the end. The memory of full gradients stays while the values are
  // unsharded, because the caller may use views of it.
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
  ShardedGradients* external_ = nullptr;  // `gradients_` if the parameter group is external
};

}  // namespace gangway
