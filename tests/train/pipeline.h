// Training steps of a pipeline: meshes with stages, and one forward and backward with its gradients.
#pragma once

#include "parallel/pipeline/generators.h"
#include "parallel/pipeline/runtime.h"
#include "train/train_testing.h"

namespace gangway::test {

struct PipelineCase {
  std::string schedule = "1f1b";
  int pp = 2, microbatches = 4, shards = 1, replicas = 1, stages_per_rank = 0;
  Strategy strategy = Strategy::full_shard;
  RecomputeKind recompute = RecomputeKind::none;
  StageSplit split = StageSplit::even;
  int64_t steps = 5;
  int tp = 1, cp = 1;
  bool sequence_parallel = false;
  std::shared_ptr<const Schedule> own_schedule = {};

  int ranks() const { return pp * shards * replicas * tp * cp; }
  std::string text() const {
    return gangway::text(schedule, ", pp ", pp, ", ", microbatches, " microbatches, dp_shard ", shards,
                         ", dp_replicate ", replicas, ", tp ", tp, ", cp ", cp, ", strategy ",
                         static_cast<int>(strategy), ", recompute ", static_cast<int>(recompute));
  }
  ParallelOptions options(DType master) const {
    ParallelOptions options = parallel(strategy, master);
    options.recompute.kind = recompute;
    options.pipeline.schedule = schedule;
    options.pipeline.stages_per_rank = stages_per_rank;
    options.pipeline.own_schedule = own_schedule;
    options.pipeline.split = split;
    options.tensor.family.sequence_parallel = sequence_parallel;
    return options;
  }
};

inline GangsPtr make_gangs(Gang& root, const PipelineCase& c) {
  MeshOptions mesh;
  mesh.pp = c.pp;
  mesh.dp_shard = c.shards;
  mesh.dp_replicate = c.replicas;
  mesh.tp = c.tp;
  mesh.cp = c.cp;
  return create_gangs(root.shared_from_this(), mesh);
}

inline std::unique_ptr<Model> make_model(Gang& root, const PipelineCase& c, const DecoderOptions& config,
                                         DType master = DType::f64) {
  return make_model(make_decoder(config), make_gangs(root, c), c.options(master));
}

struct SumOfLosses final : LossSink {
  explicit SumOfLosses(Stream& stream) : stream(stream) {}
  void add(const Values& outputs) override {
    stream.synchronize();
    const HostMemory host(outputs[0]);
    sum += host.data<double>()[0];
    ++count;
  }
  Stream& stream;
  double sum = 0;
  int count = 0;
};

// Runs forward and backward with the rows of step 0, without an update. Returns the sum of the losses.
inline double run_once(Model& model, const Reference& reference, int microbatches) {
  Stream& stream = model.device().stream();
  const Batch batch = own_rows(model, reference, 0);
  const std::vector<int64_t> bounds = balanced_bounds(batch.inputs[0].dim(0), microbatches);
  std::vector<Values> inputs;
  std::vector<Specs> specs;
  for (size_t m = 0; m + 1 < bounds.size(); ++m) {
    inputs.push_back({batch.inputs[0].slice(0, bounds[m], bounds[m + 1]),
                      batch.targets[0].slice(0, bounds[m], bounds[m + 1])});
    specs.push_back(specs_of(inputs.back()));
  }
  Context ctx = model.run().context(stream);
  ctx.training = ctx.fused_loss = true;
  ctx.loss_scale = 1 / static_cast<double>(reference.weight());
  model.pipeline()->check(ctx, specs);
  model.pipeline()->exchange_specs(ctx, specs, [](const Specs&) {});
  SumOfLosses losses(stream);
  model.pipeline()->run(ctx, inputs, model.recompute(), losses);
  model.run().finish_gradients(stream);
  EXPECT_EQ(losses.count, model.pipeline()->has_loss() ? microbatches : 0);
  return losses.sum;
}

// Compares loss, norm and every gradient of the first step, losses and norms of all steps, and the parameters
// after five steps.
inline void expect_reference(Gang& root, const Reference& reference, const PipelineCase& c, DType master) {
  const bool wide = master == DType::f64;
  const double tolerance = wide ? 1e-10 : 1e-5, final_tolerance = wide ? 1e-10 : 2e-4;
  const auto model = make_model(root, c, reference.config, master);
  assign_initial(*model, reference);
  const std::vector<double>&losses = reference.values("adamw.losses"),
        &norms = reference.values("adamw.grad_norms");
  if (c.cp == 1) {  // with cp only a training step splits the sequences
    run_once(*model, reference, c.microbatches);
    for (const NamedParameter& p : model->inspect().parameters())
      EXPECT_LT(distance(gathered_gradient(*model, *p.parameter), reference.values("grad." + p.name)),
                tolerance)
          << c.text() << ", " << p.name;
    model->run().zero_gradients(model->device().stream());
  }

  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), optimizer_of(reference), model->ops());
  StepOptions options;
  options.max_grad_norm = reference.optimizer.max_grad_norm;
  options.microbatches = c.microbatches;
  const StepResult eval =
      eval_step(*model, own_rows(*model, reference, 0), options, model->device().stream());
  EXPECT_NEAR(eval.loss / losses[0], 1, tolerance) << c.text();
  for (int64_t step = 0; step < c.steps; ++step) {
    const auto at = static_cast<size_t>(step);
    const StepResult result = train_step(*model, optimizer.get(), own_rows(*model, reference, step), options,
                                         model->device().stream());
    EXPECT_NEAR(result.loss / losses[at], 1, tolerance) << c.text() << ", step " << step;
    EXPECT_NEAR(result.grad_norm / norms[at], 1, step == 0 ? tolerance : 5 * tolerance) << c.text();
    EXPECT_EQ(result.skipped, Skip::none);
  }
  if (c.steps < 5) return;
  for (const NamedParameter& p : model->inspect().parameters())
    EXPECT_LT(distance(gathered(*model, *p.parameter), reference.values("final." + p.name)), final_tolerance)
        << c.text() << ", " << p.name;
}

}  // namespace gangway::test
