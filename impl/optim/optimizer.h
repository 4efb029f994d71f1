// The optim layer. Belongs here: the update of one rank's shards, schedules, rules. Does not: gradient
// reduction, clipping over a mesh (parallel), the training step (train).
//
// Optimizers over local shards: an optimizer sees `shard`, `shard_grad` and `shard_copy` of each parameter,
// never a gang. lr, step, scale and clip factor of a step go to all of its work as one OptimizerControl.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/facts.h"
#include "nn/module.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"

namespace gangway {

// For parameters whose whole name matches; the last match wins alone, nothing is merged. Without a match:
// lr_scale 1 and the optimizer's weight decay, but none for 1-d parameters. A pattern that matches no
// parameter is refused.
struct OptimizerRule {
  std::string pattern;
  double lr_scale = 1;
  double weight_decay = -1;  // -1: as without a rule; a number also holds for 1-d parameters
  bool frozen = false;  // the parameter is not stepped (set before the optimizer: no gradient buffer either)
};

struct OptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0;
  LrSchedule schedule;
  std::vector<OptimizerRule> rules;
  LossScaleOptions loss_scale;
  // AdamW
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  DType moment_dtype = DType::f32;  // f32 or bf16; f64 parameters have f64 moments
  // SGD
  double momentum = 0;
  bool nesterov = false;
};

class Optimizer {
 public:
  struct Slot {
    std::string name;  // "exp_avg", "exp_avg_sq", "momentum"
    Tensor tensor;     // like the parameter's shard
  };
  virtual ~Optimizer() = default;
  virtual const char* kind() const = 0;  // "adamw", "sgd"

  // One step over every trainable parameter that has rows here, its copy in the compute dtype included;
  // counts the step. A gradient that was not written is zero. `scale` has 1 / loss scale in it.
  void step(double scale, double clip, Stream& stream);
  virtual std::vector<Slot> state(size_t parameter) const = 0;  // of parameters()[i]; empty when frozen

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  int64_t steps() const { return steps_; }
  double lr() const;       // at the next step
  void set_lr(double lr);  // INVALID_ARGUMENT: not a finite number >= 0
  LossScale& loss_scale() { return loss_scale_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  const OptimizerOptions& options() const { return options_; }
  size_t state_bytes(bool on_host = false) const;  // on the device, or of parameters that rest on the host
  // What all ranks must have alike: kind, hyperparameters, rules, and the learning rate, loss scale and number of
  // the next step.
  void add_facts(Facts& facts) const;

 protected:
  Optimizer(const char* kind, std::vector<NamedParameter> parameters, const OptimizerOptions& options,
            Ops& ops);
  virtual void step_one(size_t i,
                        Stream& stream) = 0;  // parameters()[i]; scale, clip, lr and step are in control_

  static Tensor flat(const Tensor& tensor);
  std::vector<Tensor> make_moments() const;  // zeros by parameter, like its shard; absent where frozen

  struct Resolved {
    double lr_scale, weight_decay;
    bool frozen;
  };
  std::vector<NamedParameter> parameters_;
  std::vector<Resolved> resolved_;  // by parameter
  OptimizerOptions options_;
  Facts fixed_;  // the part of add_facts that no call changes
  OptimizerControl control_;
  int64_t steps_ = 0;
  LossScale loss_scale_;
  Ops& ops_;
};

// Parameters must have storage (INVALID_STATE). State is zero. INVALID_ARGUMENT names the field and its
// value.
std::unique_ptr<Optimizer> make_adamw(std::vector<NamedParameter> parameters, const OptimizerOptions& options,
                                      Ops& ops);
std::unique_ptr<Optimizer> make_sgd(std::vector<NamedParameter> parameters, const OptimizerOptions& options,
                                    Ops& ops);

}  // namespace gangway
