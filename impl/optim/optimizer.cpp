#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

namespace gangway {
namespace {

void check_not_negative(const char* kind, const char* field, double value) {
  if (!(std::isfinite(value) && value >= 0))
    fail(Code::invalid_argument, kind, ": ", field, " = ", value, " is not a finite number >= 0");
}

void check_rule(const char* kind, const OptimizerRule& rule, size_t index) {
  const std::string where = text("rules[", index, "] (\"", rule.pattern, "\")");
  if (rule.pattern.empty()) fail(Code::invalid_argument, kind, ": ", where, " has an empty pattern");
  check_not_negative(kind, (where + ".lr_scale").c_str(), rule.lr_scale);
  if (rule.weight_decay != -1) check_not_negative(kind, (where + ".weight_decay").c_str(), rule.weight_decay);
}

Facts facts_of(const char* kind, const OptimizerOptions& o) {
  Facts facts;
  facts.add("optimizer", kind);
  facts.add("weight_decay", o.weight_decay);
  facts.add("schedule", o.schedule.kind);
  facts.add("warmup_steps", o.schedule.warmup);
  facts.add("total_steps", o.schedule.total);
  facts.add("last_lr_ratio", o.schedule.final_ratio);
  facts.add("beta1", o.beta1);
  facts.add("beta2", o.beta2);
  facts.add("eps", o.eps);
  facts.add("moment_dtype", o.moment_dtype);
  facts.add("momentum", o.momentum);
  facts.add("nesterov", o.nesterov);
  for (size_t i = 0; i < o.rules.size(); ++i) {
    facts.set_scope(text("rules[", i, "]"));
    facts.add("pattern", o.rules[i].pattern);
    facts.add("lr_scale", o.rules[i].lr_scale);
    facts.add("weight_decay", o.rules[i].weight_decay);
    facts.add("frozen", o.rules[i].frozen);
  }
  return facts;
}

// Not materialised: neither a name nor rows. A rank past the last row has the name and no rows.
bool has_storage(const Parameter& parameter) { return parameter.shard || !parameter.full_name.empty(); }

// Of any parameter: gradients go through the activations of all.
bool computes_in_f16(const std::vector<NamedParameter>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const NamedParameter& named) {
    return named.parameter->compute_dtype == DType::f16;
  });
}

}  // namespace

Optimizer::Optimizer(const char* kind, std::vector<NamedParameter> parameters,
                     const OptimizerOptions& options, Ops& ops)
    : parameters_(std::move(parameters)),
      options_(options),
      fixed_(facts_of(kind, options)),
      loss_scale_(kind, options.loss_scale, computes_in_f16(parameters_)),
      ops_(ops) {
  check_not_negative(kind, "lr", options.lr);
  check_not_negative(kind, "weight_decay", options.weight_decay);
  if (options.moment_dtype != DType::f32 && options.moment_dtype != DType::bf16)
    fail(Code::invalid_argument, kind, ": moment_dtype = ", name(options.moment_dtype),
         " is neither f32 nor bf16");
  check(options.schedule);
  for (size_t i = 0; i < options.rules.size(); ++i) check_rule(kind, options.rules[i], i);

  std::vector<bool> used(options.rules.size());
  for (const NamedParameter& named : parameters_) {
    const Parameter& parameter = *named.parameter;
    if (!has_storage(parameter))
      fail(Code::invalid_state, kind, ": ", named.name,
           " has no storage; materialize the model before its optimizer");
    const double decay = parameter.shape.rank() > 1 ? options.weight_decay : 0.0;
    Resolved resolved{1, decay, !parameter.trainable || parameter.kind == Parameter::Kind::buffer};
    const bool never = resolved.frozen;
    for (size_t i = 0; i < options.rules.size(); ++i) {
      const OptimizerRule& rule = options.rules[i];
      if (!path_matches(rule.pattern, named.name)) continue;
      used[i] = true;
      resolved = {rule.lr_scale, rule.weight_decay == -1 ? decay : rule.weight_decay, rule.frozen || never};
    }
    resolved_.push_back(resolved);
  }
  // A pattern that matches nothing is a slip of the pen that would otherwise train on unseen.
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      fail(Code::invalid_argument, kind, ": rules[", i, "] \"", options.rules[i].pattern,
           "\" matches none of ", parameters_.size(), " parameters");
}

void Optimizer::step(double scale, double clip, Stream& stream) {
  control_ = {lr(), scale, clip, steps_ + 1};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i].parameter;
    if (resolved_[i].frozen || !parameter.shard || parameter.shard.count() == 0) continue;
    // Gradients that were not written count as zero: the moments still decay.
    parameter.shard_grad->zero_if_unwritten(ops_, stream);
    step_one(i, stream);
  }
  ++steps_;
}

double Optimizer::lr() const { return options_.lr * factor(options_.schedule, steps_ + 1); }

void Optimizer::set_lr(double lr) {
  check_not_negative(kind(), "lr", lr);
  options_.lr = lr;
}

void Optimizer::add_facts(Facts& facts) const {
  facts.add(fixed_);
  facts.add("steps", steps_);
  facts.add("lr", lr());
  loss_scale_.add_facts(facts);
}

size_t Optimizer::state_bytes(bool on_host) const {
  size_t bytes = 0;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].parameter->rests_on_host == on_host)
      for (const Slot& slot : state(i)) bytes += slot.tensor.bytes();
  return bytes;
}

Tensor Optimizer::flat(const Tensor& tensor) { return tensor.reshape(Shape{tensor.count()}); }

std::vector<Tensor> Optimizer::make_moments() const {
  std::vector<Tensor> moments;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i].parameter;
    if (resolved_[i].frozen || !parameter.shard) {
      moments.emplace_back();
      continue;
    }
    const DType dtype = parameter.dtype == DType::f64 ? DType::f64 : options_.moment_dtype;
    Device& device = ops_.device();
    moments.push_back(
        Tensor::allocate(parameter.rests_on_host ? device.pinned_allocator() : device.allocator(), dtype,
                         parameter.shard.shape()));
    ops_.fill(moments.back(), 0, ops_.device().stream());
  }
  return moments;
}

}  // namespace gangway
