#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.h"

namespace gangway {
namespace {

void check_not_negative(const char* kind, const char* field, double value) {
  if (!(std::isfinite(value) && value >= 0))
    fail(Code::invalid_argument, kind, ": ", field, " = ", value, " is not a finite number >= 0");
}

void check_count(const char* kind, const char* what, int64_t value) {
  if (value < 0) fail(Code::invalid_argument, kind, ": ", what, " = ", value, " is below 0");
}

void check_rule(const OptimizerKind& row, const OptimizerRule& rule, size_t index) {
  const char* const kind = row.name;
  const std::string where = text("rules[", index, "] (\"", rule.pattern, "\")");
  if (rule.pattern.empty()) fail(Code::invalid_argument, kind, ": ", where, " has an empty pattern");
  check_not_negative(kind, (where + ".lr_scale").c_str(), rule.lr_scale);
  if (rule.weight_decay != -1) check_not_negative(kind, (where + ".weight_decay").c_str(), rule.weight_decay);
  if (rule.adamw < -1 || rule.adamw > 1)
    fail(Code::invalid_argument, kind, ": ", where, ".adamw = ", rule.adamw, " is not -1, 0 or 1");
  if (rule.adamw != -1 && !row.mixes_adamw)
    fail(Code::invalid_argument, kind, ": ", where, ".adamw = ", rule.adamw,
         ", but only muon steps some parameters by AdamW; leave it at -1");
}

CallSignature signature_of(const OptimizerKind& kind, const OptimizerOptions& o, const HyperValues& values) {
  CallSignature signature;
  signature.add("optimizer", kind.name);
  signature.add("weight_decay", o.weight_decay);
  signature.add("ema_decay", o.ema_decay);
  signature.add("schedule", schedule_name(o.schedule.kind));
  signature.add("warmup_steps", o.schedule.warmup);
  signature.add("total_steps", o.schedule.total);
  signature.add("last_lr_ratio", o.schedule.final_ratio);
  signature.add("decay_steps", o.schedule.decay);
  add_to_signature(kind, values, signature);
  for (size_t i = 0; i < o.rules.size(); ++i) {
    signature.set_scope(text("rules[", i, "]"));
    signature.add("pattern", o.rules[i].pattern);
    signature.add("lr_scale", o.rules[i].lr_scale);
    signature.add("weight_decay", o.rules[i].weight_decay);
    signature.add("frozen", o.rules[i].frozen);
    signature.add("adamw", o.rules[i].adamw);
  }
  return signature;
}

// Finds the elements of a shard in its whole tensor. A box that is cut in several dims after the first has
// more levels of rows than two numbers can say; its elements are numbered by themselves then, and a step
// depends on the mesh. No layout of today cuts so.
RandomRounding place_of(const Shape& whole, const Box& box, uint64_t key) {
  RandomRounding place{.key = key};
  const std::array<int64_t, kMaxDims> strides = row_major(whole);
  int split = whole.rank();  // the box spans this dim and all later ones
  while (split > 0 && box.shape[split - 1] == whole[split - 1]) --split;
  for (int d = 1; d + 1 < split; ++d)
    if (box.shape[d] != whole[d]) return place;
  for (int d = 0; d < whole.rank(); ++d)
    place.first += box.first[static_cast<size_t>(d)] * strides[static_cast<size_t>(d)];
  if (split < 2) return place;  // one run of elements
  place.columns = box.shape.count_from(split - 1);
  place.stride = strides[static_cast<size_t>(split - 2)];
  return place;
}

// A parameter that is not materialised has neither a full name nor rows. A rank past the last row has the
// name alone.
bool has_storage(const Parameter& parameter) { return parameter.shard || !parameter.full_name.empty(); }

// One parameter in f16 is enough, because the gradients of all go through its activations.
bool computes_in_f16(const std::vector<NamedParameter>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const NamedParameter& named) {
    return named.parameter->compute_dtype == DType::f16;
  });
}

}  // namespace

Optimizer::Optimizer(const OptimizerKind& kind, std::vector<NamedParameter> parameters,
                     const OptimizerOptions& options, Ops& ops)
    : ops_(ops),
      kind_(kind),
      parameters_(std::move(parameters)),
      states_(parameters_.size()),
      first_steps_(parameters_.size()),
      options_(options),
      configured_lr_(options.lr),
      values_(complete(kind, options.hyperparameters)),
      fixed_(signature_of(kind, options, values_)),
      loss_scale_(kind.name, options.loss_scale, computes_in_f16(parameters_)) {
  check_not_negative(kind.name, "lr", options.lr);
  check_not_negative(kind.name, "weight_decay", options.weight_decay);
  if (!(options.ema_decay >= 0 && options.ema_decay < 1))
    fail(Code::invalid_argument, kind.name, ": ema_decay = ", options.ema_decay, " is outside [0, 1)");
  check(options.schedule);
  for (size_t i = 0; i < options.rules.size(); ++i) check_rule(kind, options.rules[i], i);
  resolve_rules();
}

void Optimizer::resolve_rules() {
  std::vector<bool> used(options_.rules.size());
  for (const NamedParameter& named : parameters_) {
    const Parameter& parameter = *named.parameter;
    if (!has_storage(parameter))
      fail(Code::invalid_state, kind_.name, ": ", named.name,
           " has no storage; materialize the model before its optimizer");
    const double decay = parameter.shape.rank() > 1 ? options_.weight_decay : 0.0;
    Resolved resolved{1, decay, !parameter.trainable || parameter.kind == Parameter::Kind::buffer, -1};
    const bool never = resolved.frozen;
    for (size_t i = 0; i < options_.rules.size(); ++i) {
      const OptimizerRule& rule = options_.rules[i];
      if (!path_matches(rule.pattern, named.name)) continue;
      used[i] = true;
      resolved = {rule.lr_scale, rule.weight_decay == -1 ? decay : rule.weight_decay, rule.frozen || never,
                  rule.adamw};
    }
    resolved_.push_back(resolved);
  }
  // A pattern that matches nothing is most likely misspelt, and training would go on without the rule.
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      fail(Code::invalid_argument, kind_.name, ": rules[", i, "] \"", options_.rules[i].pattern,
           "\" matches none of ", parameters_.size(), " parameters");
}

void Optimizer::step(double scale, double clip, Stream& stream) {
  control_ = {lr(), scale, clip, steps_ + 1};
  // A gradient that was not written counts as zero: the states still decay.
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!resolved_[i].frozen && has_rows(i))
      parameters_[i].parameter->shard_grad->zero_if_unwritten(ops_, stream);
  step_all(stream);
  if (has_ema()) average(stream);
  ++steps_;
}

void Optimizer::step_all(Stream& stream) {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!resolved_[i].frozen && has_rows(i)) step_one(i, stream);
}

OptimizerControl Optimizer::control_of(size_t i) const {
  OptimizerControl control = control_;
  control.step = std::max<int64_t>(control.step - first_steps_[i], 1);
  return control;
}

void Optimizer::check_moves(const char* field, double decay, DType dtype) const {
  const double half = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f32 ? 0x1p-24 : 0;
  if (decay <= 1 - half) return;
  fail(Code::invalid_argument, kind(), ": ", field, " = ", decay, " is so near 1 that an average in ",
       name(dtype), " stands still: a step changes it by ", 1 - decay,
       " of itself, and rounding takes up to ", half, "; take at most ", 1 - half,
       dtype == DType::bf16 ? ", or moment_dtype f32" : "");
}

RandomRounding Optimizer::rounding_of(size_t i) const {
  const Parameter& p = parameter(i);
  const PhiloxBlock key =
      philox(philox_key(options_.seed, p.full_name), static_cast<uint64_t>(control_.step));
  return place_of(p.shape, local_box(p.layout, p.shape, p.place),
                  static_cast<uint64_t>(key[1]) << 32 | key[0]);
}

void Optimizer::set_steps(int64_t steps) {
  check_count(kind(), "steps", steps);
  steps_ = steps;
}

void Optimizer::set_first_step(size_t parameter, int64_t steps) {
  check_count(kind(), "first step", steps);
  first_steps_.at(parameter) = steps;
}

double Optimizer::lr() const {
  const int64_t step = steps_ + 1;
  if (!schedule_) return options_.lr * factor(options_.schedule, step);
  const double given = schedule_(step);
  if (!(std::isfinite(given) && given >= 0))
    fail(Code::invalid_argument, kind(), ": the schedule's callback gave ", given, " at step ", step,
         ", not a finite number >= 0");
  return options_.lr * given;
}

void Optimizer::set_lr(double lr) {
  check_not_negative(kind(), "lr", lr);
  options_.lr = lr;
}

void Optimizer::add_to_signature(CallSignature& signature) const {
  signature.add(fixed_);
  signature.add("steps", steps_);
  signature.add("lr", lr());
  signature.add("ema_swapped", ema_swapped_);
  loss_scale_.add_to_signature(signature);
}

size_t Optimizer::state_bytes(bool on_host) const {
  size_t bytes = 0;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].parameter->is_offloaded == on_host)
      for (const Slot& slot : states_[i]) bytes += slot.tensor.bytes();
  return bytes;
}

void Optimizer::make_states(DType dtype) {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (wants_states(i))
      for (size_t state = 0; state < kind_.states.size(); ++state) add_state(i, state, dtype);
}

void Optimizer::add_state(size_t i, size_t state, DType dtype) {
  const Parameter& p = parameter(i);
  add_state(i, state, p.dtype == DType::f64 ? DType::f64 : dtype, p.shard.shape(),
            {{}, {}, p.shape, p.layout, p.place});
}

void Optimizer::add_state(size_t i, size_t state, DType dtype, const Shape& local, Slot slot) {
  Device& device = ops_.device();
  const bool on_host = parameter(i).is_offloaded;
  if (slot.name.empty()) slot.name = kind_.states[state].name;
  slot.tensor = Tensor::allocate(on_host ? device.pinned_allocator() : device.allocator(), dtype, local);
  if (is_floating(dtype))
    ops_.fill(slot.tensor, 0, device.stream());
  else if (!on_host)
    device.zero(slot.tensor.raw(), slot.tensor.bytes(), device.stream());
  else if (slot.tensor.raw() != nullptr)
    std::memset(slot.tensor.raw(), 0, slot.tensor.bytes());
  states_[i].push_back(std::move(slot));
}

void Optimizer::add_ema() {
  if (!has_ema()) return;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const Parameter& p = parameter(i); wants_states(i)) {
      check_moves("ema_decay", options_.ema_decay, p.dtype);
      add_state(i, 0, p.dtype, p.shard.shape(), {"ema", {}, p.shape, p.layout, p.place});
    }
}

void Optimizer::average(Stream& stream) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (resolved_[i].frozen || !has_rows(i)) continue;
    const Tensor& values = parameter(i).shard;
    const Tensor& ema = states_[i].back().tensor;
    if (control_of(i).step == 1) {
      ops_.cast(values, ema, stream);
      continue;
    }
    ops_.scale(ema, options_.ema_decay, stream);
    ops_.add(values, 1 - options_.ema_decay, ema, stream);
  }
}

void Optimizer::restart_ema(size_t i, Stream& stream) {
  if (has_rows(i)) ops_.cast(parameter(i).shard, states_[i].back().tensor, stream);
}

void Optimizer::swap_ema(Stream& stream) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (resolved_[i].frozen || !has_rows(i)) continue;
    const Tensor& values = parameter(i).shard;
    const Tensor& ema = states_[i].back().tensor;
    const Tensor kept = Tensor::allocate(ops_.device().allocator(), values.dtype(), values.shape());
    ops_.cast(values, kept, stream);
    ops_.cast(ema, values, stream);
    ops_.cast(kept, ema, stream);
  }
  ema_swapped_ = !ema_swapped_;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view kind, std::vector<NamedParameter> parameters,
                                          const OptimizerOptions& options, Ops& ops,
                                          std::unique_ptr<WholeTensors> whole) {
  const OptimizerKind& row = optimizer_kind(kind);
  if (whole == nullptr) whole = make_local_tensors(ops);
  std::unique_ptr<Optimizer> made = row.make(row, std::move(parameters), options, ops, std::move(whole));
  made->add_ema();
  return made;
}

}  // namespace gangway
