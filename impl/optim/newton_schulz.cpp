#include "optim/newton_schulz.h"

#include <algorithm>
#include <utility>

namespace gangway {

void orthogonalize(Ops& ops, const Tensor& x, int64_t steps, double eps, Stack& temporaries, Stream& stream) {
  constexpr double kX = 3.4445, kA = -4.7750, kAA = 2.0315;
  const StackScope scope(temporaries);
  const bool tall = x.dim(0) > x.dim(1);
  const int64_t side = std::min(x.dim(0), x.dim(1));
  const DType dtype = x.dtype(), wide = dtype == DType::f64 ? DType::f64 : DType::f32;

  // Ranks have other numbers of threads on another mesh, and the result is to have the same bits there.
  const auto multiply = [&](GemmArgs product) {
    product.steady = true;
    ops.gemm(product, stream);
  };

  const Tensor power = temporaries.allocate(DType::f64, Shape{1});
  ops.fill(power, 0, stream);
  ops.norm_power(x, 2, power, stream);
  ops.divide_by_norm({.y = x, .power = power, .least = eps}, stream);

  const Tensor gram = temporaries.allocate(dtype, Shape{side, side});
  const Tensor polynomial = temporaries.allocate(wide, Shape{side, side});
  const Tensor factor = dtype == wide ? polynomial : temporaries.allocate(dtype, Shape{side, side});
  Tensor now = x, next = temporaries.allocate(wide, x.shape());
  for (int64_t step = 0; step < steps; ++step) {
    multiply({.a = now, .b = now, .c = gram, .bias = {}, .transpose_a = tall, .transpose_b = !tall});
    multiply({.a = gram, .b = gram, .c = polynomial, .bias = {}});
    ops.scale(polynomial, kAA, stream);
    ops.add(gram, kA, polynomial, stream);
    if (dtype != wide) ops.cast(polynomial, factor, stream);
    ops.cast(now, next, stream);
    ops.scale(next, kX, stream);
    // A tall x is multiplied from the right by the transpose, so that rounding is that of the transposed x.
    if (tall)
      multiply({.a = now, .b = factor, .c = next, .bias = {}, .transpose_b = true, .accumulate = true});
    else
      multiply({.a = factor, .b = now, .c = next, .bias = {}, .accumulate = true});
    if (dtype == wide)
      std::swap(now, next);
    else
      ops.cast(next, now, stream);
  }
  if (now.raw() != x.raw()) ops.cast(now, x, stream);
}

}  // namespace gangway
