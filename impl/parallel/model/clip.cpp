#include "parallel/model/clip.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace gangway {
namespace {

// Parameters by the axes that split them ("": equal on all ranks), in the order of the tree.
using ByAxes = std::map<std::string, std::vector<const Parameter*>>;

ByAxes by_shard_axes(const FsdpState& domain) {
  ByAxes groups;
  for (const auto& unit : domain.units())
    for (const NamedParameter& named : unit->parameters())
      groups[shard_axes(named.parameter->layout)].push_back(named.parameter.get());
  return groups;
}

// Sum of powers (or the greatest) of this rank's pieces.
double local_power(const std::vector<const Parameter*>& parameters, Ops& ops, double p, Stream& stream) {
  const Tensor sum = Tensor::allocate(ops.device().allocator(), DType::f64, Shape{1});
  ops.fill(sum, 0, stream);
  for (const Parameter* parameter : parameters)
    if (parameter->trainable && parameter->shard_grad != nullptr &&
        parameter->shard_grad->tensor.count() != 0)
      ops.norm_power(parameter->shard_grad->tensor, p, sum, stream);
  double value = 0;
  ops.device().copy(&value, sum.raw(), sizeof value, stream);
  stream.synchronize();
  return std::isnan(value) && std::isinf(p) ? p
                                            : value;  // a maximum over ranks may lose a NaN, but no infinity
}

}  // namespace

void check_norm_type(const char* what, double p) {
  constexpr double kMost = 64;
  if (!(p > 0)) fail(Code::invalid_argument, what, " = ", p, " is not over 0");
  if (p > kMost && !std::isinf(p))
    fail(Code::invalid_argument, what, " = ", p, " is over ", kMost,
         ": powers of gradients underflow; infinity gives the largest gradient");
}

double gradient_norm(const FsdpState& domain, Ops& ops, double p, Stream& stream) {
  check_norm_type("norm_type", p);
  const bool greatest = std::isinf(p);
  double total = 0;
  for (const auto& [axes, parameters] : by_shard_axes(domain)) {
    double power = ops.device().kind() == DeviceKind::meta ? 0 : local_power(parameters, ops, p, stream);
    if (!axes.empty()) {
      Collective c;
      c.op = CollectiveOp::all_reduce;
      c.in = c.out = &power;
      c.count = 1;
      c.dtype = DType::f64;
      c.reduce = greatest ? Reduce::max : Reduce::sum;
      domain.gangs()->by_axes(axes)->run_now(Channel::control, c, &stream);
    }
    total = greatest ? std::max(total, power) : total + power;
  }
  if (ops.device().kind() == DeviceKind::meta || greatest) return total;
  return p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

}  // namespace gangway
