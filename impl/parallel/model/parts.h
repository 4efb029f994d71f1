// The data that the classes of a Model share: the module tree with its wrappers, its storage, and the state
// of a step.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "mesh/gangs.h"
#include "nn/layers.h"
#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

class ActivationOffload;  // parallel/activation_offload.h
class Pipeline;           // parallel/pipeline/runtime.h

struct ModelParts {
  // Null gangs stand for a private gang of one rank. INVALID_ARGUMENT: two parameters have the same name.
  ModelParts(ModulePtr root, std::shared_ptr<Gangs> gangs);
  ~ModelParts();
  void check_materialized(const char* call) const;  // INVALID_STATE: it is not materialised

  ModulePtr root;
  std::shared_ptr<Gangs> gangs;
  std::unique_ptr<Ops> ops;
  // Memory for activations and temporaries. Peers can access it directly if tensor parallelism communicates
  // them.
  std::shared_ptr<Allocator> memory;
  Stack temporaries;
  std::vector<std::unique_ptr<Frame>> frames;
  std::shared_ptr<FsdpState> fsdp;
  std::shared_ptr<ActivationOffload> offload;  // null: activations stay on the device
  std::unique_ptr<Pipeline> pipeline;          // null: pp is 1

  // ModelBuilder sets these.
  std::vector<NamedParameter> parameters, aliases;  // of the whole model; empty before materialize
  Recompute recompute = Recompute::none;
  uint64_t seed = 0;
  bool computes = true;  // false: a model of shard groups, which has no forward
  bool materialized = false;
};

}  // namespace gangway
