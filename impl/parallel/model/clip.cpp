#include "parallel/model/clip.h"

#include <algorithm>
#include <cmath>

namespace gangway {
namespace {

// Sum of powers (or the greatest) over units of one kind.
double local_power(const FsdpState& domain, bool sharded, Ops& ops, double p, Stream& stream) {
  const Tensor sum = Tensor::allocate(ops.device().allocator(), DType::f64, Shape{1});
  ops.fill(sum, 0, stream);
  for (const auto& unit : domain.units()) {
    if (unit->sharded() != sharded) continue;
    for (const NamedParameter& named : unit->parameters()) {
      const Parameter& parameter = *named.parameter;
      if (parameter.trainable && parameter.shard_grad && parameter.shard_grad.count() != 0)
        ops.norm_power(parameter.shard_grad, p, sum, stream);
    }
  }
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
  double sharded = 0;
  GangPtr shards;
  for (const auto& unit : domain.units())
    if (unit->sharded()) shards = unit->place().shards;
  if (shards != nullptr) {
    Collective c;
    sharded = ops.device().kind() == DeviceKind::meta ? 0 : local_power(domain, true, ops, p, stream);
    c.op = CollectiveOp::all_reduce;
    c.in = c.out = &sharded;
    c.count = 1;
    c.dtype = DType::f64;
    c.reduce = greatest ? Reduce::max : Reduce::sum;
    shards->run_now(Channel::control, c, &stream);
  }
  if (ops.device().kind() == DeviceKind::meta) return 0;
  const double whole = local_power(domain, false, ops, p, stream);
  if (greatest) return std::max(sharded, whole);
  return p == 2 ? std::sqrt(sharded + whole) : std::pow(sharded + whole, 1 / p);
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

}  // namespace gangway
