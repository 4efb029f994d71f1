// What the parts of a Model share: the tree with its wrappers, its storage, and what a step needs to run it.
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
  // gangs null: a private gang of one. INVALID_ARGUMENT: two parameters of one name.
  ModelParts(ModulePtr root, std::shared_ptr<Gangs> gangs);
  ~ModelParts();
  void check_materialized(const char* call) const;  // INVALID_STATE

  ModulePtr root;
  std::shared_ptr<Gangs> gangs;
  std::unique_ptr<Ops> ops;
  // Of activations and temporaries: memory that peers reach directly, where boundaries move them.
  std::shared_ptr<Allocator> memory;
  Stack temporaries;
  std::vector<std::unique_ptr<Frame>> frames;
  std::shared_ptr<FsdpState> fsdp;
  std::shared_ptr<ActivationOffload> offload;  // null: activations stay on the device
  std::unique_ptr<Pipeline> pipeline;          // null: pp is 1

  // Set by ModelBuilder.
  std::vector<NamedParameter> parameters, aliases;  // of the whole model; empty before materialize
  Recompute recompute = Recompute::none;
  uint64_t seed = 0;
  bool computes = true;  // has a forward of its own
  bool materialized = false;
};

}  // namespace gangway
