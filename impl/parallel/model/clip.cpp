#include "parallel/model/clip.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tensor/host_view.h"

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

// Sums of powers (or the greatest) of this rank's pieces, one for each entry. Waits for the device: the numbers decide
// what the step does next.
std::vector<double> local_powers(const ByAxes& groups, Ops& ops, double p, Stream& stream) {
  const auto count = static_cast<int64_t>(groups.size());
  if (count == 0 || ops.device().kind() == DeviceKind::meta) return std::vector<double>(groups.size(), 0);
  const Tensor sums = Tensor::allocate(ops.device().allocator(), DType::f64, Shape{count});
  ops.fill(sums, 0, stream);
  int64_t index = 0;
  for (const auto& [axes, parameters] : groups) {
    const Tensor sum = sums.slice(0, index, index + 1);
    ++index;
    for (const Parameter* parameter : parameters)
      if (parameter->trainable && parameter->shard_grad != nullptr &&
          parameter->shard_grad->tensor.count() != 0)
        ops.norm_power(parameter->shard_grad->tensor, p, sum, stream);
  }
  const HostView<double> values(sums, stream);
  std::vector<double> powers;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[static_cast<size_t>(i)];
    powers.push_back(std::isnan(value) && std::isinf(p) ? p : value);  // a maximum over ranks may lose a NaN
  }
  return powers;
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
  const ByAxes groups = by_shard_axes(domain);
  std::vector<double> powers = local_powers(groups, ops, p, stream);
  double total = 0;
  size_t index = 0;
  for (const auto& [axes, parameters] : groups) {
    double& power = powers[index++];
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
