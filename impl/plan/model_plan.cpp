#include "plan/model_plan.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "mesh/gangs.h"
#include "optim/optimizer.h"
#include "parallel/fsdp/fsdp_state.h"
#include "parallel/model/mesh_tensors.h"
#include "parallel/model/model.h"
#include "train/step.h"

namespace gangway {
namespace {

std::vector<int> choices(int degree, int ranks) {
  if (degree > 0) return ranks % degree == 0 ? std::vector<int>{degree} : std::vector<int>{};
  std::vector<int> all;
  for (int d = 1; d <= ranks; ++d)
    if (ranks % d == 0) all.push_back(d);
  return all;
}

std::vector<MeshOptions> meshes_of(const MeshOptions& wanted, int ranks) {
  std::vector<MeshOptions> all;
  for (const int pp : choices(wanted.pp, ranks))
    for (const int replicate : choices(wanted.dp_replicate, ranks / pp))
      for (const int cp : choices(wanted.cp, ranks / pp / replicate))
        for (const int tp : choices(wanted.tp, ranks / pp / replicate / cp)) {
          const int shard = ranks / pp / replicate / cp / tp;
          if (wanted.dp_shard < 1 || wanted.dp_shard == shard) all.push_back({pp, replicate, shard, cp, tp});
        }
  return all;
}

}  // namespace

MeshPlan plan_mesh(const ModelPlanRequest& request, const MeshOptions& degrees) {
  MeshPlan plan{degrees, request.microbatches, 0, {}, {}};
  if (plan.microbatches == 0) plan.microbatches = degrees.pp > 1 ? 2 * degrees.pp : 1;
  try {
    for (int stage = 0; stage < degrees.pp; ++stage) {
      const int rank = stage * (request.ranks / degrees.pp);
      const MemoryUse use = planned_use(request, degrees, plan.microbatches, rank);
      if (stage > 0 && use.total() <= plan.use.total()) continue;
      plan.use = use;
      plan.rank = rank;
    }
  } catch (const Error& error) {
    plan.refusal = error.message();
  }
  return plan;
}

MemoryUse use_of_training(const GangPtr& root, const ModelPlanRequest& request, const MeshOptions& degrees,
                          int microbatches) {
  const ModulePtr decoder = make_decoder(request.decoder);
  if (request.lora) apply_lora(decoder, *request.lora);
  if (request.fp8) apply_fp8(decoder, *request.fp8);
  Model model(decoder, create_gangs(root, degrees));
  model.fsdp().use_regions(request.one_host);
  model.build().parallelize(request.options);
  OptimizerOptions options = request.optimizer_options;
  if (request.optimizer.empty()) options.hyperparameters["moment_dtype"] = request.moment_dtype;
  const auto optimizer =
      make_optimizer(request.optimizer.empty() ? "adamw" : request.optimizer, model.inspect().parameters(),
                     options, model.ops(), make_mesh_tensors(model));
  const auto counted =
      model.inspect().count_optimizer(optimizer->state_bytes(), optimizer->state_bytes(/*on_host=*/true));
  const Tensor ids = Tensor::allocate(model.device().allocator(), DType::i64,
                                      Shape{request.rows * microbatches, request.sequence});
  model.device().zero(ids.raw(), ids.bytes(), model.device().stream());
  Batch batch;
  batch.inputs = batch.targets = {ids};
  StepOptions step;
  step.microbatches = microbatches;
  step.max_grad_norm = 1;
  for (int i = 0; i < 2; ++i) train_step(model, optimizer.get(), batch, step, model.device().stream());
  return model.inspect().memory();
}

MemoryUse planned_use(const ModelPlanRequest& request, const MeshOptions& degrees, int microbatches,
                      int rank) {
  GangOptions meta;
  meta.device = request.one_host ? "meta" : "meta:cuda";
  meta.threads = 1;
  return use_of_training(
      Gang::create_fake(rank, request.ranks, meta, /*record=*/false, /*refuse_meta=*/false), request, degrees,
      microbatches);
}

std::vector<MeshPlan> plan_meshes(const ModelPlanRequest& request) {
  std::vector<MeshPlan> plans;
  for (const MeshOptions& degrees : meshes_of(request.degrees, request.ranks))
    plans.push_back(plan_mesh(request, degrees));
  if (plans.empty())
    fail(Code::invalid_argument, "no mesh of ", request.ranks, " ranks has the degrees that were given");
  std::stable_sort(plans.begin(), plans.end(), [](const MeshPlan& a, const MeshPlan& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    return a.refusal.empty() && a.use.total() < b.use.total();
  });
  return plans;
}

}  // namespace gangway
