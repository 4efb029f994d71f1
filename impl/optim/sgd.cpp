#include "optim/optimizer.h"

namespace gangway {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerKind& kind, std::vector<NamedParameter> parameters, const OptimizerOptions& options,
      Ops& ops)
      : Optimizer(kind, std::move(parameters), options, ops),
        momentum_(hyper<double>("momentum")),
        nesterov_(hyper<bool>("nesterov")) {
    if (nesterov_ && momentum_ == 0) fail(Code::invalid_argument, "sgd: nesterov needs momentum > 0");
    if (momentum_ > 0) make_states(DType::f32);
  }

 private:
  void step_one(size_t i, Stream& stream) override {
    SgdArgs args = arguments<SgdArgs>(i);
    if (momentum_ > 0) args.m = flat_state(i, 0);
    args.momentum = momentum_;
    args.nesterov = nesterov_;
    ops_.sgd(args, stream);
  }

  const double momentum_;
  const bool nesterov_;
};

constexpr StateName kStates[] = {
    {"momentum", "the velocity; absent where momentum is 0"},
};

constexpr Hyperparameter kHyperparameters[] = {
    {"momentum", 0.0, "[0, 1)", "how much of the velocity a step keeps; 0: plain gradient descent"},
    {"nesterov", false, "", "looks ahead along the velocity; needs a momentum"},
};

}  // namespace

extern const OptimizerKind kSgd = {
    .name = "sgd",
    .title = "SGD",
    .doc = "Stochastic gradient descent, with momentum if wanted. Weight decay is added to the gradient.",
    .lr = 1e-3,
    .weight_decay = 0,
    .states = kStates,
    .hyperparameters = kHyperparameters,
    .make = make_kind<Sgd>,
};

}  // namespace gangway
