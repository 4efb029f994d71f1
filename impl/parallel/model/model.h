// The parallel layer. Belongs here: what wraps modules so that ranks share them (parameter groups, replicas,
// redistribution, context parallelism, recomputation), shard groups, partitions, the norm over a mesh. Does not: what a
// module computes (nn), the order of a training step (train), how bytes travel (gang).
//
// A model on gangs: what a gw_module becomes by parallelize or materialize; train, checkpoint and capi work on it. It is
// built, then run and inspected, each by a class of its own over the same parts.
//
// Thread rule: one thread at a time.
#pragma once

#include "parallel/model/builder.h"
#include "parallel/model/inspector.h"
#include "parallel/model/runner.h"

namespace gangway {

class Model {
 public:
  // gangs null: a private gang of one. The device is the root gang's.
  Model(ModulePtr root, std::shared_ptr<Gangs> gangs) : parts_(std::move(root), std::move(gangs)) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  ModelBuilder& build() { return builder_; }
  ModelRunner& run() { return runner_; }
  const ModelRunner& run() const { return runner_; }
  ModelInspector& inspect() { return inspector_; }

  Module& root() { return *parts_.root; }
  Gangs& gangs() { return *parts_.gangs; }
  Ops& ops() { return *parts_.ops; }
  Device& device() { return parts_.gangs->root()->device(); }
  Stack& temporaries() { return parts_.temporaries; }
  const std::shared_ptr<Allocator>& memory() const { return parts_.memory; }  // of its frames
  FsdpState& fsdp() { return *parts_.fsdp; }
  bool materialized() const { return parts_.materialized; }
  Pipeline* pipeline() { return parts_.pipeline.get(); }                                // null: pp is 1
  const ActivationOffload* activation_offload() const { return parts_.offload.get(); }  // null: none
  Recompute recompute() const { return parts_.recompute; }
  // Frames are reused; index = microbatch in flight.
  Frame& frame(size_t index);

 private:
  ModelParts parts_;
  ModelBuilder builder_{parts_};
  ModelRunner runner_{parts_};
  ModelInspector inspector_{parts_, runner_};
};

}  // namespace gangway
