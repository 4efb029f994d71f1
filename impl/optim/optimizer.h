// The optim layer holds the update of one rank's shards, schedules, rules and loss scales. It does not
// hold the reduction of gradients, clipping over a mesh (parallel) or the training step (train).
//
// An optimizer sees `shard`, `shard_grad` and `shard_copy` of each parameter, never a gang. The learning
// rate, step number, scale and clip factor of a step go to all of its operations as one OptimizerControl.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/call_signature.h"
#include "nn/module.h"
#include "optim/kind.h"
#include "optim/optimizer_options.h"
#include "optim/whole_tensors.h"

namespace gangway {

class Optimizer {
 public:
  // A state of one parameter. The whole state is a tensor of `shape`, of which `tensor` holds this rank's
  // part, box(). Checkpoints write and read states so. A kind may keep states of other shapes than the
  // parameter's; their layout has the parameter's placement over pp, if there is one.
  struct Slot {
    std::string name;  // from the kind's table of states
    Tensor tensor;     // contiguous
    Shape shape;
    Layout layout;
    std::vector<int> place;  // this rank's index on the axis of each placement of `layout`
    Box box() const { return local_box(layout, shape, place); }
  };
  virtual ~Optimizer() = default;
  const char* kind() const { return kind_.name; }

  // Steps every trainable parameter that has rows on this rank, also its copy in the compute dtype, and
  // counts the step. A gradient that was not written is zero. `scale` includes 1 / loss scale.
  void step(double scale, double clip, Stream& stream);

  // Besides options and parameters, the next step depends on these alone: the states of each parameter, the
  // number of steps, the first steps, the base rate and the loss scale. A checkpoint saves them.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const std::vector<Slot>& state(size_t parameter) const { return states_.at(parameter); }  // empty: frozen
  bool is_frozen(size_t parameter) const { return resolved_.at(parameter).frozen; }
  int64_t steps() const { return steps_; }
  // The next step is number steps + 1, for the schedule and the bias correction. INVALID_ARGUMENT: below 0.
  void set_steps(int64_t steps);
  // How many steps had been taken when a parameter became trainable; its bias correction counts from there.
  int64_t first_step(size_t parameter) const { return first_steps_.at(parameter); }
  void set_first_step(size_t parameter, int64_t steps);  // INVALID_ARGUMENT: below 0
  LossScale& loss_scale() { return loss_scale_; }
  const LossScale& loss_scale() const { return loss_scale_; }

  double lr() const;       // at the next step
  void set_lr(double lr);  // sets the base rate. INVALID_ARGUMENT: not a finite number >= 0
  // Takes `factor` in the place of the schedule: what the base rate is multiplied by at a step, counted from
  // 1.
  // lr() refuses a factor that is not a finite number >= 0, and hands on what it throws.
  void set_schedule(std::function<double(int64_t step)> factor) { schedule_ = std::move(factor); }
  double base_lr() const { return options_.lr; }           // which the schedule multiplies
  double configured_lr() const { return configured_lr_; }  // that of the options, before any set_lr
  // The averages of the parameters (EMA). A step ends with ema = ema_decay ema + (1 - ema_decay) p; the first
  // one copies p. swap_ema exchanges the averages and the values, for an evaluation; a second call swaps
  // back. It is local and writes values: begin_update comes before it. It needs ema_decay > 0.
  bool has_ema() const { return options_.ema_decay > 0; }
  void add_ema();  // once, by what makes the optimizer, after all other states
  bool ema_swapped() const { return ema_swapped_; }
  void restart_ema(size_t parameter, Stream& stream);  // its average becomes its value
  void swap_ema(Stream& stream);

  const OptimizerOptions& options() const { return options_; }
  size_t state_bytes(bool on_host = false) const;  // on the device, or of parameters that rest on the host
  // The values that no call changes: kind, hyperparameters, schedule, rules.
  const CallSignature& fixed_signature() const { return fixed_; }
  // Adds the values that must be equal on all ranks: kind, hyperparameters, rules, and the learning rate,
  // loss scale and number of the next step.
  void add_to_signature(CallSignature& signature) const;

 protected:
  Optimizer(const OptimizerKind& kind, std::vector<NamedParameter> parameters,
            const OptimizerOptions& options, Ops& ops);
  // Steps all parameters that are not frozen. As it stands, it steps those that have rows on this rank, one
  // after the other. A kind that exchanges values with other ranks does so here: every rank calls it.
  virtual void step_all(Stream& stream);
  // Steps parameters()[i], for step_all as it stands. arguments(i) fills in the arguments that every kind
  // has.
  virtual void step_one(size_t, Stream&) {}

  const Parameter& parameter(size_t i) const { return *parameters_[i].parameter; }
  bool has_rows(size_t i) const { return parameter(i).shard && parameter(i).shard.count() != 0; }
  int adamw_rule(size_t i) const {
    return resolved_[i].adamw;
  }  // OptimizerRule::adamw of the rule that applies
  const OptimizerControl& control() const { return control_; }
  OptimizerControl control_of(size_t i) const;  // with the number of steps of parameters()[i]

  template <typename T>
  T hyper(std::string_view name) const {
    return std::get<T>(values_.find(name)->second);
  }
  // Throws INVALID_ARGUMENT if an average in `dtype` with this decay would stand still: a step changes it by
  // less than half the distance of two numbers. Averages that are rounded at random need no check.
  void check_moves(const char* field, double decay, DType dtype) const;
  // The rounding of the states of parameters()[i] in this step. Its key depends on the seed, the parameter's
  // whole name and the step.
  RandomRounding rounding_of(size_t i) const;
  // Allocates every state of the kind's table for every parameter: zeros in shape and layout of the
  // parameter.
  // f64 parameters have f64 states.
  void make_states(DType dtype);
  // Adds a state to parameters()[i]: row `state` of the kind's table, in shape and layout of the parameter,
  // f64 for f64 parameters; or in its own, with all bytes zero.
  void add_state(size_t i, size_t state, DType dtype);
  void add_state(size_t i, size_t state, DType dtype, const Shape& local, Slot slot);
  // Whether parameters()[i] can have states: it is not frozen, and this rank knows its rows.
  bool wants_states(size_t i) const { return !resolved_[i].frozen && parameter(i).shard; }
  static Tensor flat(const Tensor& tensor) { return tensor.reshape(Shape{tensor.count()}); }
  Tensor flat_state(size_t i, size_t state) const { return flat(states_[i][state].tensor); }

  template <typename Args>
  Args arguments(size_t i) const {
    const Parameter& parameter = *parameters_[i].parameter;
    Args args;
    args.p = flat(parameter.shard);
    if constexpr (requires { args.g; }) args.g = flat(parameter.shard_grad->tensor);
    if (parameter.shard_copy) args.copy = flat(parameter.shard_copy);
    args.control = control_of(i);
    if constexpr (requires { args.rounding; }) args.rounding = rounding_of(i);
    args.lr_scale = resolved_[i].lr_scale;
    args.weight_decay = resolved_[i].weight_decay;
    return args;
  }

  Ops& ops_;

 private:
  struct Resolved {
    double lr_scale, weight_decay;
    bool frozen;
    int adamw;
  };
  void resolve_rules();
  void average(Stream& stream);

  const OptimizerKind& kind_;
  std::vector<NamedParameter> parameters_;
  std::vector<Resolved> resolved_;         // by parameter
  std::vector<std::vector<Slot>> states_;  // by parameter
  std::vector<int64_t> first_steps_;       // by parameter
  OptimizerOptions options_;
  const double configured_lr_;
  HyperValues values_;
  CallSignature fixed_;                      // the part of add_to_signature that no call changes
  std::function<double(int64_t)> schedule_;  // empty: that of the options
  OptimizerControl control_;
  int64_t steps_ = 0;
  bool ema_swapped_ = false;
  LossScale loss_scale_;
};

// Parameters must have storage (INVALID_STATE). States are zero. `whole` reaches the other ranks; null: this
// rank has every parameter whole. INVALID_ARGUMENT names the field and its value, or the kinds that there
// are.
std::unique_ptr<Optimizer> make_optimizer(std::string_view kind, std::vector<NamedParameter> parameters,
                                          const OptimizerOptions& options, Ops& ops,
                                          std::unique_ptr<WholeTensors> whole = nullptr);

// Creates an optimizer of class `Kind`: the `make` of its row. A class that takes no WholeTensors steps every
// parameter with what this rank has.
template <typename Kind>
std::unique_ptr<Optimizer> make_kind(const OptimizerKind& kind, std::vector<NamedParameter> parameters,
                                     const OptimizerOptions& options, Ops& ops,
                                     [[maybe_unused]] std::unique_ptr<WholeTensors> whole) {
  if constexpr (requires { Kind(kind, parameters, options, ops, std::move(whole)); })
    return std::make_unique<Kind>(kind, std::move(parameters), options, ops, std::move(whole));
  else
    return std::make_unique<Kind>(kind, std::move(parameters), options, ops);
}

}  // namespace gangway
