// The parallel layer. It contains everything that wraps modules so that ranks share them (parameter groups,
// replicas, redistribution, context parallelism, recomputation), shard groups, partitions, and the norm over
// a mesh. It does not contain what a module computes (nn), the order of a training step (train), or how bytes
// are sent (gang).
//
// A Model is a module tree on gangs: parallelize or materialize turns a gw_module into it, and train,
// checkpoint and capi work on it. Separate classes over the same parts build it, run it and inspect it.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/thread_use.h"
#include "parallel/model/builder.h"
#include "parallel/model/inspector.h"
#include "parallel/model/runner.h"

namespace gangway {

class Model {
 public:
  // Null gangs stand for a private gang of one rank. The device is that of the root gang.
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
  const std::shared_ptr<Allocator>& memory() const { return parts_.memory; }  // for frames
  FsdpState& fsdp() { return *parts_.fsdp; }
  bool materialized() const { return parts_.materialized; }
  Pipeline* pipeline() { return parts_.pipeline.get(); }                                // null: pp is 1
  const ActivationOffload* activation_offload() const { return parts_.offload.get(); }  // null: not used
  Recompute recompute() const { return parts_.recompute; }
  // The folder from which the values were loaded: the checkpoint layer keeps here what its next save writes
  // besides the values.
  struct Origin {
    std::string folder;  // absolute; empty: none
    std::string config;  // the text of its config.json
    // The hash of all values but those of adapters, once it was needed (checkpoint/run/base_hash.h).
    std::optional<uint64_t> base_hash = {};
    // The base of adapters came from a checkpoint of the run, and no folder has it: the next ones hold it,
    // too.
    bool is_saved_with_adapters = false;
  };
  Origin& origin() { return origin_; }
  // One thread at a time makes calls on the model. The C layer looks after that.
  const std::shared_ptr<ThreadUse>& thread_use() const { return thread_use_; }
  void share_thread_use(std::shared_ptr<ThreadUse> use) { thread_use_ = std::move(use); }  // before any call
  // Returns the frame of the microbatch in flight with this index. Frames are reused.
  Frame& frame(size_t index);

 private:
  ModelParts parts_;
  ModelBuilder builder_{parts_};
  ModelRunner runner_{parts_};
  ModelInspector inspector_{parts_, runner_};
  Origin origin_;
  std::shared_ptr<ThreadUse> thread_use_ = std::make_shared<ThreadUse>();
};

}  // namespace gangway
