// A training run for tests of checkpoints: a small language model with its optimizer on any mesh, and steps
// of a global batch that every mesh shares out in its own way.
#pragma once

#include <cstring>

#include "checkpoint/model_io.h"
#include "checkpoint/run/checkpoints.h"
#include "nn/lora.h"
#include "parallel/model/mesh_tensors.h"
#include "train/pipeline.h"

namespace gangway::test {

struct RunCase {
  std::string kind = "adamw";
  OptimizerOptions optimizer = {};
  DType master = DType::f32;
  DType compute = DType{};
  PipelineCase mesh = {.pp = 1, .shards = 2};
  int64_t vocab = 23;  // divided by no number of ranks
  bool tied = false;
  uint64_t seed = 3;
  int64_t layers = 1;     // a pipeline needs one for each stage
  int64_t lora_rank = 0;  // of adapters, which alone are trained; 0: none

  int ranks() const { return mesh.ranks(); }
  ModulePtr module() const {
    const ModulePtr made = make_decoder(config());
    LoraOptions lora;
    lora.rank = lora_rank;
    if (lora_rank != 0) apply_lora(made, lora);
    return made;
  }
  DecoderOptions config() const {
    DecoderOptions config = small_llama(tied);
    config.vocab = vocab;
    config.layers = layers;
    return config;
  }
};

struct TrainingRun {
  TrainingRun(Gang& root, const RunCase& c) : which(c) {
    ParallelOptions parallel = c.mesh.options(c.master);
    parallel.shard.param_dtype = c.compute;
    parallel.seed = c.seed;
    model = make_model(c.module(), make_gangs(root, c.mesh), parallel);
    optimizer = make_optimizer(c.kind, model->inspect().parameters(), c.optimizer, model->ops(),
                               make_mesh_tensors(*model));
  }

  const GangsPtr& gangs() const { return model->fsdp().gangs(); }
  CheckpointPart part(const std::string& name = "") const { return {name, model.get(), optimizer.get()}; }

  // Trains on global batch number `number`, 12 rows of which this rank takes its share.
  StepResult step(int64_t number) const {
    constexpr int64_t kRows = 12, kLength = 8;
    int index = 0, count = 1;
    model->gangs().data_shard(&index, &count);
    const std::vector<int64_t> bounds = balanced_bounds(kRows, count);
    std::vector<int64_t> ids;
    const int64_t first = bounds[static_cast<size_t>(index)], last = bounds[static_cast<size_t>(index) + 1];
    for (int64_t r = first; r < last; ++r)
      for (int64_t s = 0; s < kLength; ++s) ids.push_back((5 * number + 3 * r + s * s) % which.vocab);
    Batch batch;
    batch.inputs = {test::tensor_of(*model, DType::i64, Shape{last - first, kLength}, ids.data())};
    StepOptions options;
    options.max_grad_norm = 1;
    options.microbatches = which.mesh.pp > 1 ? which.mesh.microbatches : 1;
    return train_step(*model, optimizer.get(), batch, options, model->device().stream());
  }
  void steps(int64_t first, int64_t last, std::vector<double>* losses = nullptr) const {
    for (int64_t i = first; i < last; ++i) {
      const StepResult result = step(i);
      if (losses != nullptr) losses->insert(losses->end(), {result.loss, result.lr, result.loss_scale});
    }
  }

  // The bytes of this rank's masters and states.
  std::string bytes() const {
    std::string all;
    const auto add = [&](const Tensor& tensor) {
      if (!tensor || tensor.count() == 0) return;
      const HostMemory host(tensor);
      all.append(host.data<char>(), tensor.bytes());
    };
    for (size_t i = 0; i < optimizer->parameters().size(); ++i) {
      add(optimizer->parameters()[i].parameter->shard);
      for (const Optimizer::Slot& slot : optimizer->state(i)) add(slot.tensor);
    }
    return all;
  }

  const RunCase which;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
};

inline CheckpointsOptions in_folder(const std::string& folder) {
  CheckpointsOptions options;
  options.folder = folder;
  options.timeout_ms = 60'000;
  return options;
}
// For tests whose fact is not the writer's thread, which gets little time on a machine that is busy.
inline CheckpointsOptions synchronous_in(const std::string& folder) {
  CheckpointsOptions options = in_folder(folder);
  options.synchronous = true;
  return options;
}

inline CheckpointState at_step(int64_t step) {
  CheckpointState state;
  state.step = step;
  return state;
}

// Names of the complete checkpoints of a folder.
inline std::vector<std::string> complete(const std::string& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("step-"); });
  return names;
}

}  // namespace gangway::test
