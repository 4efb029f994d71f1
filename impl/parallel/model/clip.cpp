#include "parallel/model/clip.h"

#include <algorithm>
#include <cmath>

#include "tensor/host_view.h"

namespace gangway {
namespace {

// Sums of powers (or the greatest) of this rank's gradients.
struct Powers {
  double sharded = 0, whole = 0;
};

// Waits for the device: the numbers decide what the step does next.
Powers local_powers(const FsdpState& domain, Ops& ops, double p, Stream& stream) {
  const Tensor sums = Tensor::allocate(ops.device().allocator(), DType::f64, Shape{2});
  ops.fill(sums, 0, stream);
  for (const auto& unit : domain.units()) {
    const int64_t kind = unit->sharded() ? 0 : 1;
    for (const NamedParameter& named : unit->parameters()) {
      const Parameter& parameter = *named.parameter;
      if (parameter.trainable && parameter.shard_grad && parameter.shard_grad.count() != 0)
        ops.norm_power(parameter.shard_grad, p, sums.slice(0, kind, kind + 1), stream);
    }
  }
  const HostView<double> values(sums, stream);
  // A maximum over ranks may lose a NaN, but no infinity.
  const auto kept = [&](double value) { return std::isnan(value) && std::isinf(p) ? p : value; };
  return {kept(values[0]), kept(values[1])};
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
  Powers powers;
  if (ops.device().kind() != DeviceKind::meta) powers = local_powers(domain, ops, p, stream);
  GangPtr shards;
  for (const auto& unit : domain.units())
    if (unit->sharded()) shards = unit->place().shards;
  if (shards != nullptr) {
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.in = c.out = &powers.sharded;
    c.count = 1;
    c.dtype = DType::f64;
    c.reduce = greatest ? Reduce::max : Reduce::sum;
    shards->run_now(Channel::control, c, &stream);
  }
  if (ops.device().kind() == DeviceKind::meta) return 0;
  if (greatest) return std::max(powers.sharded, powers.whole);
  const double sum = powers.sharded + powers.whole;
  return p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

}  // namespace gangway
