#include "optim/optimizer.h"

namespace gangway {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<NamedParameter> parameters, const OptimizerOptions& options, Ops& ops)
      : Optimizer("adamw", std::move(parameters), options, ops),
        first_(make_moments()),
        second_(make_moments()) {}

  const char* kind() const override { return "adamw"; }

  std::vector<Slot> state(size_t parameter) const override {
    if (!first_.at(parameter)) return {};
    return {{"exp_avg", first_[parameter]}, {"exp_avg_sq", second_[parameter]}};
  }

 private:
  void step_one(size_t i, Stream& stream) override {
    const Parameter& parameter = *parameters_[i].parameter;
    AdamWArgs args;
    args.p = flat(parameter.shard);
    args.g = flat(parameter.shard_grad->tensor);
    args.m = flat(first_[i]);
    args.v = flat(second_[i]);
    if (parameter.shard_copy) args.copy = flat(parameter.shard_copy);
    args.control = control_;
    args.lr_scale = resolved_[i].lr_scale;
    args.beta1 = options_.beta1;
    args.beta2 = options_.beta2;
    args.eps = options_.eps;
    args.weight_decay = resolved_[i].weight_decay;
    ops_.adamw(args, stream);
  }

  std::vector<Tensor> first_, second_;  // by parameter; absent where frozen
};

void check_beta(const char* field, double value) {
  if (!(value >= 0 && value < 1))
    fail(Code::invalid_argument, "adamw: ", field, " = ", value, " is outside [0, 1)");
}

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<NamedParameter> parameters, const OptimizerOptions& options,
                                      Ops& ops) {
  check_beta("beta1", options.beta1);
  check_beta("beta2", options.beta2);
  if (!(options.eps > 0 && options.eps < 1))
    fail(Code::invalid_argument, "adamw: eps = ", options.eps, " is outside (0, 1)");
  return std::make_unique<AdamW>(std::move(parameters), options, ops);
}

}  // namespace gangway
