// The plan layer tells what a training would do before it runs. It contains nothing that a run needs.
//
// The memory that a training would use with each mesh. The model is built, split and trained
// on the meta device over a fake gang, where the same code as in a real run counts the bytes.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gang/gang.h"
#include "mesh/mesh.h"
#include "nn/fp8.h"
#include "nn/layers.h"
#include "nn/lora.h"
#include "optim/optimizer_options.h"
#include "parallel/memory_use.h"
#include "parallel/options.h"

namespace gangway {

struct ModelPlanRequest {
  DecoderOptions decoder;
  int ranks = 1;
  // A degree below 1 means: try all numbers that divide the ranks.
  MeshOptions degrees{0, 0, 0, 0, 0};
  int64_t rows = 1;  // rows of a microbatch
  int64_t sequence = 0;
  int microbatches = 0;  // 0: twice pp, or 1 without pp
  ParallelOptions options;
  std::optional<LoraOptions> lora;  // none: the whole model is trained
  std::optional<Fp8Options> fp8;    // none: no layer computes in FP8
  DType moment_dtype = DType::f32;  // of AdamW, if `optimizer` is empty
  std::string optimizer = {};       // the kind; empty: AdamW with its defaults
  OptimizerOptions optimizer_options = {};
  // Whether the ranks share gathered weights, as processes of one CPU host do.
  bool one_host = false;
};

struct MeshPlan {
  MeshOptions degrees;
  int microbatches = 1;
  int rank = 0;  // the rank that uses the most memory
  MemoryUse use;
  std::string refusal;  // why the model cannot be trained with this mesh; empty: it can
};

// Returns the bytes that this rank of `root` uses after two steps with the optimizer. Collective. Throws what
// the model or the mesh refuses.
MemoryUse use_of_training(const GangPtr& root, const ModelPlanRequest& request, const MeshOptions& degrees,
                          int microbatches);
// Returns the bytes that a rank would use, by a training on the meta device.
MemoryUse planned_use(const ModelPlanRequest& request, const MeshOptions& degrees, int microbatches,
                      int rank);
// Returns the plan of the rank that uses the most memory with this mesh. The first rank of a stage has the
// most rows, so only one rank of each stage is planned.
MeshPlan plan_mesh(const ModelPlanRequest& request, const MeshOptions& degrees);
// Returns all meshes: first those that work, by the memory that they use, then the refused ones.
// INVALID_ARGUMENT: no mesh of this number of ranks has the given degrees.
std::vector<MeshPlan> plan_meshes(const ModelPlanRequest& request);

}  // namespace gangway
