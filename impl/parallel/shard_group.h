// Shard groups: sharding for a runtime that computes by itself. A
// group is one unit of parameters without modules; several groups make a Model that optimizer, load and save
// take.
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
  DType dtype = DType::f32;  // master
  Init init;
  bool trainable = true;
};

enum class Part : int32_t { value = 0, gradient = 1, full_value = 2, full_gradient = 3 };

class ShardGroup {
 public:
  virtual ~ShardGroup() = default;
  virtual const std::string& name() const = 0;
  virtual const std::vector<NamedParameter>& parameters() const = 0;  // "<group>.<parameter>"
  virtual Device& device() = 0;
  virtual const GangPtr& gang() = 0;  // the root gang
  virtual Gangs& gangs() = 0;

  // Collective where peers are on other hosts; else a version check. Into the caller's memory when `into` has
  // one tensor per parameter: a stable copy.
  virtual void unshard(std::span<const Tensor> into, Stream& stream) = 0;
  virtual WorkPtr unshard_async(Stream& stream) = 0;
  virtual void reshard(Stream& stream) = 0;
  virtual bool unsharded() const = 0;
  // INVALID_STATE: a full part while sharded, a gradient of a frozen parameter.
  virtual Tensor view(size_t parameter, Part part) = 0;
  // full gradient += gradient (f64, f32, bf16 or f16, global shape).
  virtual void add_gradient(size_t parameter, const Tensor& gradient, Stream& stream) = 0;
  // Adds the SUM over dp_replicate x dp_shard x cp into the local gradient, empties the full one. Collective.
  virtual void reduce(Stream& stream) = 0;
  // The ownership fence around a caller's own write of Part::value (ModelRunner::begin_update for this group
  // alone). Refusals of begin_update are agreed; end_update does not wait.
  virtual void begin_update(Stream& stream) = 0;
  virtual void end_update(Stream& stream) = 0;
};

// Collective; refusals are agreed.
std::shared_ptr<ShardGroup> make_shard_group(const std::shared_ptr<Gangs>& gangs, const std::string& name,
                                             const std::vector<GroupParameter>& parameters,
                                             const ShardOptions& options, uint64_t seed);

// A materialised model whose parameters are those of the groups, for optimizer, clip, load and save.
// INVALID_ARGUMENT: groups of different gangs, a name twice.
std::shared_ptr<Model> model_from_groups(const std::vector<std::shared_ptr<ShardGroup>>& groups);

}  // namespace gangway
