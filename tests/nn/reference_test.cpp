// A whole model on the library's own operations against values made elsewhere.
#include "nn/reference_file.h"

#include <tuple>

#include "nn/nn_testing.h"

namespace gangway {
namespace {

using namespace nn_testing;

struct Tolerance {
  double forward;  // logits, losses, gradients and their norm
  double steps;    // parameters after AdamW steps
  double norms;    // of gradients at such parameters; 2.3e-5 was seen
};

struct ReferenceTest : testing::TestWithParam<std::tuple<const char*, DType>> {
  ReferenceTest() {
    for (const NamedParameter& p : named_parameters(*model)) p.parameter->dtype = dtype;
    materialize(*model, *rig.ops, 0);
    for (const NamedParameter& p : named_parameters(*model)) {
      put(p.parameter->value, file.at("init." + p.name).values);
    }
  }

  Tensor batch(const char* name, int64_t step) {
    const test::Reference::Entry& e = file.at(name);
    const auto count = static_cast<long>(e.dims[1] * e.dims[2]);
    return rig.tensor(DType::i64, {e.dims[1], e.dims[2]},
                      Vector(e.values.begin() + step * count, e.values.begin() + (step + 1) * count));
  }

  // Forward and backward of one batch, seeded with 1 / its labels; returns the mean loss.
  double run(int64_t step, Recompute recompute = Recompute::none) {
    for (const NamedParameter& p : named_parameters(*model)) p.parameter->grad->written = false;
    const Tensor both[] = {batch("tokens", step), batch("labels", step)};
    double labels = 0;
    for (double label : get(both[1])) labels += label != -100;
    Context ctx = rig.context();
    ctx.training = true;
    ctx.loss_scale = 1 / labels;
    frame.reset();
    frame.recompute = recompute;
    const Values out = model->forward(ctx, both, &frame);
    EXPECT_EQ(get(out[1])[0], labels);
    const double loss = get(out[0])[0] / labels;
    model->backward(ctx, {}, frame);
    frame.run_weight_gradients(ctx);
    return loss;
  }

  double gradient_norm() {
    double square = 0;
    for (const NamedParameter& p : named_parameters(*model)) {
      const Tensor part = rig.tensor(DType::f64, {1}, {0});
      rig.ops->norm_power(p.parameter->grad->tensor, 2, part, rig.device->stream());
      square += get(part)[0];
    }
    return std::sqrt(square);
  }

  const test::Reference file{std::get<0>(GetParam())};
  const DType dtype = std::get<1>(GetParam());
  const Tolerance tolerance =
      dtype == DType::f64 ? Tolerance{1e-10, 1e-10, 1e-10} : Tolerance{1e-5, 2e-4, 5e-5};
  Rig rig{make_ops};
  ModulePtr model = make_decoder(file.config);
  Frame frame{rig.device->allocator()};
};

TEST_P(ReferenceTest, NamesAreThoseOfTheFile) {
  size_t count = 0;
  for (const auto& [name, entry] : file.entries) count += name.starts_with("init.");
  EXPECT_EQ(named_parameters(*model).size(), count);
  for (const NamedParameter& p : named_parameters(*model))
    EXPECT_EQ(p.parameter->shape, Shape(file.at("init." + p.name).dims)) << p.name;
}

TEST_P(ReferenceTest, Logits) {
  Context ctx = rig.context();
  const Tensor tokens = batch("tokens", 0);
  const Tensor logits = model->forward_one(ctx, tokens, nullptr);
  EXPECT_LE(normwise(get(logits), file.at("logits").values), tolerance.forward);
}

TEST_P(ReferenceTest, LossAndGradientsEqualTheReference) {
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    EXPECT_LE(normwise({run(0, recompute)}, file.at("loss").values), tolerance.forward);
    for (const NamedParameter& p : named_parameters(*model))
      EXPECT_LE(normwise(get(p.parameter->grad->tensor), file.at("grad." + p.name).values), tolerance.forward)
          << p.name;
  }
}

// bf16 values of f32 masters, f32 gradients: a mixed precision step.
TEST_P(ReferenceTest, Bf16GradientsAreAsNearAsPyTorchs) {
  if (dtype != DType::f32) return;
  for (const NamedParameter& p : named_parameters(*model)) {
    p.parameter->value = rig.empty(DType::bf16, p.parameter->shape);
    rig.ops->cast(p.parameter->shard, p.parameter->value, rig.device->stream());
  }
  const test::HalfErrors pytorch = test::half_errors(DType::bf16, std::get<0>(GetParam()));
  Vector whole[2];
  for (Recompute recompute : {Recompute::none, Recompute::selective}) {
    EXPECT_LE(normwise({run(0, recompute)}, file.at("loss").values), test::kBesidePyTorch * pytorch.loss);
    for (const NamedParameter& p : named_parameters(*model)) {
      const Vector got = get(p.parameter->grad->tensor);
      EXPECT_LE(normwise(got, file.at("grad." + p.name).values),
                test::kBesidePyTorch * pytorch.gradients.at(p.name))
          << p.name;
      Vector& all = whole[recompute == Recompute::selective];
      all.insert(all.end(), got.begin(), got.end());
    }
  }
  EXPECT_EQ(whole[0], whole[1]) << "recomputation keeps the bits";
}

TEST_P(ReferenceTest, SelectiveRecomputationGivesTheSameBits) {
  std::vector<Vector> kept;
  const double loss = run(0);
  for (const NamedParameter& p : named_parameters(*model)) kept.push_back(get(p.parameter->grad->tensor));
  EXPECT_EQ(run(0, Recompute::selective), loss);
  size_t i = 0;
  for (const NamedParameter& p : named_parameters(*model))
    EXPECT_EQ(get(p.parameter->grad->tensor), kept[i++]) << p.name;
}

TEST_P(ReferenceTest, FiveAdamWStepsEqualTheReference) {
  std::map<Parameter*, std::pair<Tensor, Tensor>> moments;
  for (const NamedParameter& p : named_parameters(*model)) {
    auto& [m, v] = moments[p.parameter.get()];
    m = rig.tensor(dtype, p.parameter->shape, Vector(static_cast<size_t>(p.parameter->shape.count())));
    v = rig.copy(m);
  }
  const double max_norm = file.optimizer.max_grad_norm;
  for (int64_t step = 0; step < 5; ++step) {
    const auto at = static_cast<size_t>(step);
    EXPECT_LE(normwise({run(step)}, {file.at("adamw.losses").values[at]}), tolerance.forward)
        << "step " << step;
    const double norm = gradient_norm();
    EXPECT_LE(normwise({norm}, {file.at("adamw.grad_norms").values[at]}),
              step == 0 ? tolerance.forward : tolerance.norms)
        << "step " << step;
    const OptimizerControl control{.lr = file.optimizer.lr,
                                   .scale = 1,
                                   .clip = std::min(1.0, max_norm / (norm + 1e-6)),
                                   .step = step + 1};
    for (const NamedParameter& p : named_parameters(*model)) {
      const auto& [m, v] = moments[p.parameter.get()];
      rig.ops->adamw({.p = p.parameter->value,
                      .g = p.parameter->grad->tensor,
                      .m = m,
                      .v = v,
                      .copy = {},
                      .control = control,
                      .lr_scale = 1,
                      .beta1 = file.optimizer.beta1,
                      .beta2 = file.optimizer.beta2,
                      .eps = file.optimizer.eps,
                      .weight_decay = file.optimizer.weight_decay},
                     rig.device->stream());
    }
  }
  for (const NamedParameter& p : named_parameters(*model))
    EXPECT_LE(normwise(get(p.parameter->value), file.at("final." + p.name).values), tolerance.steps)
        << p.name;
}

INSTANTIATE_TEST_SUITE_P(Files, ReferenceTest,
                         testing::Combine(testing::Values("llama_small", "llama_small_bias_tied",
                                                          "llama_parity", "llama_parity_tied"),
                                          testing::Values(DType::f64, DType::f32)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + name(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace gangway
