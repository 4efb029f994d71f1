// Shard groups: sharded parameters for a runtime that computes by itself. A shard group is a parameter group
// without modules. Several shard groups form a Model for the optimizer, load and save.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/model/model.h"

namespace gangway {

struct GroupParameter {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;  // of the master values
  Init init;
  bool trainable = true;
  bool is_buffer = false;                 // Parameter::Kind::buffer
  std::vector<std::string> aliases = {};  // further names, under which it is tied
};

enum class Part : int32_t { value = 0, gradient = 1, full_value = 2, full_gradient = 3 };

class ShardGroup {
 public:
  virtual ~ShardGroup() = default;
  virtual const std::string& name() const = 0;
  virtual const std::vector<NamedParameter>& parameters()
      const = 0;  // "<group>.<parameter>"; without a name of the group "<parameter>"
  virtual const std::vector<NamedParameter>& aliases() const = 0;  // of those that are tied, likewise
  virtual Device& device() = 0;
  virtual const GangPtr& gang() = 0;  // the root gang
  virtual Gangs& gangs() = 0;

  // Gives every parameter its full value: by an all-gather, or on one host by a wait for the version gate,
  // which moves no bytes. If `into` is not empty it has one tensor per parameter, into which the full values
  // are copied.
  virtual void unshard(std::span<const Tensor> into, Stream& stream) = 0;
  virtual WorkPtr unshard_async(Stream& stream) = 0;
  virtual void reshard(Stream& stream) = 0;
  virtual bool unsharded() const = 0;
  // INVALID_STATE: a full part while the group is sharded, or a gradient of a frozen parameter.
  virtual Tensor view(size_t parameter, Part part) = 0;
  // Adds to the full gradient. `gradient` has the full shape and is f64, f32, bf16 or f16.
  virtual void add_gradient(size_t parameter, const Tensor& gradient, Stream& stream) = 0;
  // Sums the full gradients over dp_replicate x dp_shard x cp, adds this rank's piece of the sum to the local
  // gradient, and empties the full one. Collective.
  virtual void reduce(Stream& stream) = 0;
  // A caller writes Part::value only between these two (as with ModelRunner::begin_update, for this group
  // alone). begin_update is collective and its refusals are agreed; end_update does not wait. INVALID_STATE:
  // full gradients are not reduced.
  virtual void begin_update(Stream& stream) = 0;
  virtual void end_update(Stream& stream) = 0;
};

// Collective; refusals are agreed.
std::shared_ptr<ShardGroup> make_shard_group(const std::shared_ptr<Gangs>& gangs, const std::string& name,
                                             const std::vector<GroupParameter>& parameters,
                                             const ShardOptions& options, uint64_t seed);

// Returns a materialised model of the parameters of all groups, for the optimizer, clipping, load and save.
// INVALID_ARGUMENT: the groups have different gangs, or two have the same name.
std::shared_ptr<Model> model_from_groups(const std::vector<std::shared_ptr<ShardGroup>>& groups);

}  // namespace gangway
