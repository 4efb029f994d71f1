#include "optim/optimizer.h"

namespace gangway {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<NamedParameter> parameters, const OptimizerOptions& options, Ops& ops)
      : Optimizer("sgd", std::move(parameters), options, ops) {
    if (options.momentum > 0) momentum_ = make_moments();
  }

  const char* kind() const override { return "sgd"; }

  std::vector<Slot> state(size_t parameter) const override {
    if (momentum_.empty() || !momentum_.at(parameter)) return {};
    return {{"momentum", momentum_[parameter]}};
  }

 private:
  void step_one(size_t i, Stream& stream) override {
    const Parameter& parameter = *parameters_[i].parameter;
    SgdArgs args;
    args.p = flat(parameter.shard);
    args.g = flat(parameter.shard_grad->tensor);
    if (!momentum_.empty()) args.m = flat(momentum_[i]);
    if (parameter.shard_copy) args.copy = flat(parameter.shard_copy);
    args.control = control_;
    args.lr_scale = resolved_[i].lr_scale;
    args.momentum = options_.momentum;
    args.weight_decay = resolved_[i].weight_decay;
    args.nesterov = options_.nesterov;
    ops_.sgd(args, stream);
  }

  std::vector<Tensor> momentum_;  // by parameter; empty without momentum, absent where frozen
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<NamedParameter> parameters, const OptimizerOptions& options,
                                    Ops& ops) {
  if (!(options.momentum >= 0 && options.momentum < 1))
    fail(Code::invalid_argument, "sgd: momentum = ", options.momentum, " is outside [0, 1)");
  if (options.nesterov && options.momentum == 0)
    fail(Code::invalid_argument, "sgd: nesterov needs momentum > 0");
  return std::make_unique<Sgd>(std::move(parameters), options, ops);
}

}  // namespace gangway
