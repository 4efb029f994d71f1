// Trains the Llama of a reference file for five AdamW steps over a mesh, and compares each loss, each
// gradient norm and the final parameters with those that another framework computed on one device.
#pragma once

#include "train/train_testing.h"

namespace gangway::test {

struct FiveSteps {
  int replicas;
  Strategy strategy;
  int microbatches;
  int tp = 1;
  bool sequence = false;  // sequence parallelism
  int cp = 1, pp = 1;
};

inline std::string describe(const FiveSteps& c, int ranks) {
  return text(ranks, " ranks, tp ", c.tp, c.sequence ? " with sequences, " : ", ", c.replicas,
              " replicas, cp ", c.cp, ", pp ", c.pp, ", strategy ", static_cast<int>(c.strategy), ", ",
              c.microbatches, " microbatches");
}

// Runs on each rank of `root`. Gradients are clipped.
inline void expect_five_steps(Gang& root, const Reference& reference, const FiveSteps& c, DType master) {
  const bool wide = master == DType::f64;
  const double tolerance = wide ? 1e-10 : 1e-5, final_tolerance = wide ? 1e-10 : 2e-4;
  // The parameters of later steps already differ from the reference. The largest error measured was 2.4e-5.
  const double later_norms = wide ? 1e-10 : 5e-5;
  const std::vector<double> losses = reference.values("adamw.losses"),
                            norms = reference.values("adamw.grad_norms");
  MeshOptions mesh;
  mesh.dp_replicate = c.replicas;
  mesh.tp = c.tp;
  mesh.cp = c.cp;
  mesh.pp = c.pp;
  ParallelOptions parallelism = parallel(c.strategy, master);
  parallelism.tensor.family.sequence_parallel = c.sequence;
  const auto model =
      make_model(make_decoder(reference.config), create_gangs(root.shared_from_this(), mesh), parallelism);
  assign_initial(*model, reference);
  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), optimizer_of(reference), model->ops());
  StepOptions options;
  options.max_grad_norm = reference.optimizer.max_grad_norm;
  options.microbatches = c.microbatches;
  const std::string which = describe(c, root.size());
  for (int64_t step = 0; step < 5; ++step) {
    const auto at = static_cast<size_t>(step);
    const StepResult result = train_step(*model, optimizer.get(), own_rows(*model, reference, step), options,
                                         model->device().stream());
    EXPECT_NEAR(result.loss / losses[at], 1, tolerance) << which << ", step " << step;
    EXPECT_NEAR(result.grad_norm / norms[at], 1, step == 0 ? tolerance : later_norms)
        << which << ", step " << step;
    EXPECT_EQ(result.step, step + 1);
    EXPECT_EQ(result.skipped, Skip::none);
  }
  for (const NamedParameter& named : model->inspect().parameters())
    EXPECT_LT(distance(gathered(*model, *named.parameter), reference.values("final." + named.name)),
              final_tolerance)
        << which << ", " << named.name;
}

}  // namespace gangway::test
