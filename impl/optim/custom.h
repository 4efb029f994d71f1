// An optimizer whose step the caller provides. The library keeps its states, schedule, rules and loss scale,
// and its average of the parameters.
//
// Thread rule: that of an optimizer.
#pragma once

#include "optim/optimizer.h"

namespace gangway {

// What a step sees of one parameter: this rank's rows. Value and states are to be written; the gradient is
// unscaled and clipped. On a device whose memory the host cannot read, the step puts its work on the stream.
struct CustomStep {
  const std::string& name;
  Tensor value, gradient;
  std::span<const Tensor> states;  // in the order of the options, f32, or f64 for f64 parameters
  double lr = 0;                   // with schedule and rules
  double weight_decay = 0;
  int64_t step = 0;  // counted from 1
};

class CustomStepper {
 public:
  virtual ~CustomStepper() = default;
  // Throws to report a failure, which fails the training step.
  virtual void step(const CustomStep& step, Stream& stream) = 0;
};

struct CustomOptimizerOptions {
  std::string name = "custom";      // in errors and files
  std::vector<std::string> states;  // names
};

// INVALID_ARGUMENT: a state has no name, one with a dot, or one that another state has.
std::unique_ptr<Optimizer> make_custom_optimizer(const CustomOptimizerOptions& own,
                                                 std::unique_ptr<CustomStepper> stepper,
                                                 std::vector<NamedParameter> parameters,
                                                 const OptimizerOptions& options, Ops& ops);

}  // namespace gangway
