// Memory that a training would take, told for each mesh before it runs: the model is described, split and trained on the meta
// device over a fake gang, where the same code counts what it would take.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gang/gang.h"
#include "mesh/mesh.h"
#include "nn/layers.h"
#include "parallel/memory_use.h"
#include "parallel/options.h"

namespace gangway {

struct ModelPlanRequest {
  LlamaConfig config;
  int ranks = 1;
  // A degree below 1 is tried with all that divide the ranks.
  MeshOptions degrees{0, 0, 0, 0, 0};
  int64_t rows = 1;  // of a microbatch
  int64_t sequence = 0;
  int microbatches = 0;  // 0: twice pp, or 1 without pp
  ParallelOptions options;
  DType moment_dtype = DType::f32;
  bool one_host = false;  // ranks share gathered weights, as processes of one CPU host do
};

struct MeshPlan {
  MeshOptions degrees;
  int microbatches = 1;
  int rank = 0;  // that takes most
  MemoryUse use;
  std::string refusal;  // why the model cannot be trained so; empty: it can
};

// The bytes of this rank of `root` after two steps with AdamW. Collective. Throws what the model or the mesh refuses.
MemoryUse use_of_training(const GangPtr& root, const ModelPlanRequest& request, const MeshOptions& degrees,
                          int microbatches);
// The same of a rank on the meta device.
MemoryUse planned_use(const ModelPlanRequest& request, const MeshOptions& degrees, int microbatches,
                      int rank);
// All meshes: those that can be trained with the least memory first, then the refused ones. INVALID_ARGUMENT: degrees that
// no mesh of so many ranks has.
std::vector<MeshPlan> plan_meshes(const ModelPlanRequest& request);

}  // namespace gangway
