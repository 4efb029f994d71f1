// Sums over a row. Only kernels include it.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

// Sums over a row what body(d, Full{} or Part{n}, sum so far) adds. It uses four vectors of sums, since a
// single one would wait for the latency of each addition.
template <typename T, typename Body>
GW_SIMD Scalar<T> sum_lanes(int64_t width, Body&& body) {
  constexpr int64_t step = Compute<T>::kLanes;
  Vec<T> a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * step <= width; i += 4 * step) {
    a = body(i, Full{}, a);
    b = body(i + step, Full{}, b);
    c = body(i + 2 * step, Full{}, c);
    d = body(i + 3 * step, Full{}, d);
  }
  for (; i + step <= width; i += step) a = body(i, Full{}, a);
  if (i < width) b = body(i, Part{static_cast<int>(width - i)}, b);
  return sum((a + b) + (c + d));
}

// Stores s = x + residual, rounded to T, so that a later pass over the stored sum gives the same bits.
// Without a residual s is x and is not stored. Returns the sum over the row of what add(s, sum so far) adds.
template <typename T, typename Add>
GW_SIMD Scalar<T> add_residual(const T* x, const T* residual, T* sum_out, int64_t width, Add&& add) {
  return sum_lanes<T>(width, [&](int64_t d, auto n, Vec<T> so_far) GW_BODY {
    Vec<T> s = load(x + d, n);
    if (residual != nullptr) {
      s = rounded<T>(s + load(residual + d, n));
      store(sum_out + d, s, n);
    }
    return add(s, so_far);
  });
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
