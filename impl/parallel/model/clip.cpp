#include "parallel/model/clip.h"

#include <algorithm>
#include <cmath>

#include "tensor/host_view.h"

namespace gangway {
namespace {

// Returns the axes that split a parameter, without pp: ranks of different stages have different parameters.
std::string axes_within_stage(const Layout& layout) {
  Layout within = layout;
  std::erase_if(within, [](const Placement& p) { return p.axis == name(Axis::pp); });
  return shard_axes(within);
}

void reduce(Gang& gang, std::span<double> powers, bool greatest, Stream& stream) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = powers.data();
  c.count = powers.size();
  c.dtype = DType::f64;
  c.reduce = greatest ? Reduce::max : Reduce::sum;
  gang.run_now(Channel::control, c, &stream);
}

double over(Gang& gang, double power, bool greatest, Stream& stream) {
  reduce(gang, {&power, 1}, greatest, stream);
  return power;
}

// Whether this rank has a part of the parameter's gradient.
bool has_gradient(const Parameter& p) {
  return p.trainable && p.shard_grad != nullptr && p.shard_grad->tensor.count() != 0;
}

}  // namespace

void check_norm_type(const char* what, double p) {
  constexpr double kMost = 64;
  if (!(p > 0)) fail(Code::invalid_argument, what, " = ", p, " is not over 0");
  if (p > kMost && !std::isinf(p))
    fail(Code::invalid_argument, what, " = ", p, " is over ", kMost,
         ": powers of gradients underflow; infinity gives the largest gradient");
}

GradientNorm::GradientNorm(const FsdpState& state, double p) : state_(state), p_(p) {
  check_norm_type("norm_type", p);
  for (const auto& group : state.groups())
    for (const NamedParameter& named : group->parameters())
      if (named.parameter->listed)
        by_axes_[axes_within_stage(named.parameter->layout)].push_back(named.parameter.get());
}

void GradientNorm::add_powers(Ops& ops, const Tensor& powers, Stream& stream) const {
  int64_t index = 0;
  for (const auto& [axes, parameters] : by_axes_) {
    const Tensor power = powers.slice(0, index, index + 1);
    ++index;
    for (const Parameter* parameter : parameters)
      if (has_gradient(*parameter)) ops.norm_power(parameter->shard_grad->tensor, p_, power, stream);
  }
}

double GradientNorm::over_mesh(std::span<const double> powers, Stream& stream) const {
  const bool greatest = std::isinf(p_);
  double total = 0;
  size_t index = 0;
  for (const auto& [axes, parameters] : by_axes_) {
    double power = powers[index++];
    if (std::isnan(power) && greatest) power = p_;  // a maximum over ranks may lose a NaN
    if (!axes.empty()) power = over(*state_.gangs()->by_axes(axes), power, greatest, stream);
    total = greatest ? std::max(total, power) : total + power;
  }
  const GangPtr& stages = state_.gangs()->pp();
  if (stages->size() > 1) total = over(*stages, total, greatest, stream);
  if (greatest) return total;
  return p_ == 2 ? std::sqrt(total) : std::pow(total, 1 / p_);
}

double gradient_norm(const FsdpState& state, Ops& ops, double p, Stream& stream) {
  const GradientNorm norm(state, p);
  std::vector<double> powers(norm.count(), 0);
  if (!powers.empty() && ops.device().kind() != DeviceKind::meta) {
    const Tensor sums =
        Tensor::allocate(ops.device().allocator(), DType::f64, Shape{static_cast<int64_t>(norm.count())});
    ops.fill(sums, 0, stream);
    norm.add_powers(ops, sums, stream);
    const HostView<double> host(sums, stream);
    powers.assign(host.begin(), host.end());
  }
  return norm.over_mesh(powers, stream);
}

std::vector<double> gradient_norms(const FsdpState& state, const std::vector<NamedParameter>& parameters,
                                   Ops& ops, Stream& stream) {
  const auto count = static_cast<int64_t>(parameters.size());
  std::vector<double> norms(parameters.size(), 0);
  if (count == 0 || ops.device().kind() == DeviceKind::meta) return norms;
  const Tensor powers = Tensor::allocate(ops.device().allocator(), DType::f64, Shape{count});
  ops.fill(powers, 0, stream);
  std::map<std::string, std::vector<size_t>> by_axes;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *parameters[i].parameter;
    const auto at = static_cast<int64_t>(i);
    if (p.listed && has_gradient(p))
      ops.norm_power(p.shard_grad->tensor, 2, powers.slice(0, at, at + 1), stream);
    by_axes[axes_within_stage(p.layout)].push_back(i);
  }
  const HostView<double> host(powers, stream);
  norms.assign(host.begin(), host.end());
  for (const auto& [axes, places] : by_axes) {
    if (axes.empty()) continue;
    std::vector<double> some;
    for (const size_t i : places) some.push_back(norms[i]);
    reduce(*state.gangs()->by_axes(axes), some, false, stream);
    for (size_t i = 0; i < places.size(); ++i) norms[places[i]] = some[i];
  }
  if (const GangPtr& stages = state.gangs()->pp(); stages->size() > 1) reduce(*stages, norms, false, stream);
  for (size_t i = 0; i < parameters.size(); ++i)
    norms[i] = parameters[i].parameter->trainable ? std::sqrt(norms[i]) : std::nan("");
  return norms;
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

}  // namespace gangway
