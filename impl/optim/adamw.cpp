#include "optim/optimizer.h"

namespace gangway {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerKind& kind, std::vector<NamedParameter> parameters, const OptimizerOptions& options,
        Ops& ops)
      : Optimizer(kind, std::move(parameters), options, ops),
        beta1_(hyper<double>("beta1")),
        beta2_(hyper<double>("beta2")),
        eps_(hyper<double>("eps")) {
    make_states(hyper<DType>("moment_dtype"));
  }

 private:
  void step_one(size_t i, Stream& stream) override {
    AdamWArgs args = arguments<AdamWArgs>(i);
    args.m = flat_state(i, 0);
    args.v = flat_state(i, 1);
    args.beta1 = beta1_;
    args.beta2 = beta2_;
    args.eps = eps_;
    ops_.adamw(args, stream);
  }

  const double beta1_, beta2_, eps_;
};

constexpr StateName kStates[] = {
    {"exp_avg", "moving average of the gradient"},
    {"exp_avg_sq", "moving average of the squared gradient"},
};

constexpr Hyperparameter kHyperparameters[] = {
    {"beta1", 0.9, "[0, 1)", "decay of the average of the gradient"},
    {"beta2", 0.999, "[0, 1)", "decay of the average of the squared gradient"},
    {"eps", 1e-8, "(0, 1)", "added to the root of that average"},
    {"moment_dtype", DType::f32, "f32 or bf16",
     "of both averages: f32 or bf16 (rounded at random, so that a decay near 1 moves them); those of f64 "
     "parameters are f64"},
};

}  // namespace

extern const OptimizerKind kAdamW = {
    .name = "adamw",
    .title = "AdamW",
    .doc = "AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay.",
    .lr = 1e-3,
    .weight_decay = 0,
    .states = kStates,
    .hyperparameters = kHyperparameters,
    .make = make_kind<AdamW>,
};

}  // namespace gangway
