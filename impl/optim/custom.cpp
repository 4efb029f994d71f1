#include "optim/custom.h"

#include <algorithm>

namespace gangway {
namespace {

// The row that other kinds have in the table, which has to live as long as the optimizer.
struct OwnRow {
  explicit OwnRow(const CustomOptimizerOptions& own) : name(own.name), names(own.states) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) fail(Code::invalid_argument, name, ": states[", i, "] has an empty name");
      if (names[i].find('.') != std::string::npos)
        fail(Code::invalid_argument, name, ": states[", i, "] is \"", names[i],
             "\", but files name a state <state>.<parameter>; leave the dot out");
      if (names[i] == "ema" || std::count(names.begin(), names.end(), names[i]) > 1)
        fail(Code::invalid_argument, name, ": states[", i, "] is \"", names[i],
             names[i] == "ema" ? "\", the name of the library's average of the parameters"
                               : "\", as another state is");
      states.push_back({names[i].c_str(), ""});
    }
    row.name = name.c_str();
    row.title = name.c_str();
    row.doc = "";
    row.states = states;
  }
  OwnRow(const OwnRow&) = delete;
  OwnRow& operator=(const OwnRow&) = delete;

  const std::string name;
  const std::vector<std::string> names;
  std::vector<StateName> states;
  OptimizerKind row{};
};

class CustomOptimizer final : private OwnRow, public Optimizer {
 public:
  CustomOptimizer(const CustomOptimizerOptions& own, std::unique_ptr<CustomStepper> stepper,
                  std::vector<NamedParameter> parameters, const OptimizerOptions& options, Ops& ops)
      : OwnRow(own), Optimizer(row, std::move(parameters), options, ops), stepper_(std::move(stepper)) {
    make_states(DType::f32);
  }

 private:
  void step_one(size_t i, Stream& stream) override {
    const Parameter& p = parameter(i);
    const AdamWArgs shared = arguments<AdamWArgs>(i);  // the rate, decay and step of the parameter
    const double factor = shared.control.scale * shared.control.clip;
    if (factor != 1) ops_.scale(p.shard_grad->tensor, factor, stream);
    std::vector<Tensor> tensors;
    for (size_t s = 0; s < names.size(); ++s) tensors.push_back(state(i)[s].tensor);
    stepper_->step({parameters()[i].name, p.shard, p.shard_grad->tensor, tensors,
                    shared.control.lr * shared.lr_scale, shared.weight_decay, shared.control.step},
                   stream);
    if (p.shard_copy) ops_.cast(p.shard, p.shard_copy, stream);
  }

  const std::unique_ptr<CustomStepper> stepper_;
};

}  // namespace

std::unique_ptr<Optimizer> make_custom_optimizer(const CustomOptimizerOptions& own,
                                                 std::unique_ptr<CustomStepper> stepper,
                                                 std::vector<NamedParameter> parameters,
                                                 const OptimizerOptions& options, Ops& ops) {
  auto made = std::make_unique<CustomOptimizer>(own, std::move(stepper), std::move(parameters), options, ops);
  made->add_ema();
  return made;
}

}  // namespace gangway
