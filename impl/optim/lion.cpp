#include "optim/optimizer.h"

namespace gangway {
namespace {

class Lion final : public Optimizer {
 public:
  Lion(const OptimizerKind& kind, std::vector<NamedParameter> parameters, const OptimizerOptions& options,
       Ops& ops)
      : Optimizer(kind, std::move(parameters), options, ops),
        beta1_(hyper<double>("beta1")),
        beta2_(hyper<double>("beta2")) {
    make_states(hyper<DType>("moment_dtype"));
  }

 private:
  void step_one(size_t i, Stream& stream) override {
    LionArgs args = arguments<LionArgs>(i);
    args.m = flat_state(i, 0);
    args.beta1 = beta1_;
    args.beta2 = beta2_;
    ops_.lion(args, stream);
  }

  const double beta1_, beta2_;
};

constexpr StateName kStates[] = {
    {"exp_avg", "moving average of the gradient"},
};

constexpr Hyperparameter kHyperparameters[] = {
    {"beta1", 0.9, "[0, 1)", "weight of the average in the direction of a step"},
    {"beta2", 0.99, "[0, 1)", "decay of the average of the gradient"},
    {"moment_dtype", DType::f32, "f32 or bf16",
     "of the average: f32 or bf16 (rounded at random, so that a decay near 1 moves it); that of f64 "
     "parameters is "
     "f64"},
};

}  // namespace

extern const OptimizerKind kLion = {
    .name = "lion",
    .title = "Lion",
    .doc = "Lion (Chen and others, 2023): steps by the sign of an average, with decoupled weight decay.",
    .lr = 1e-4,
    .weight_decay = 0,
    .states = kStates,
    .hyperparameters = kHyperparameters,
    .make = make_kind<Lion>,
};

}  // namespace gangway
