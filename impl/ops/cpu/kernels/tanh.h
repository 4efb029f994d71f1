// The hyperbolic tangent of vectors. Only kernels include it.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

// Within 3 ulp: Cephes' polynomial near 0, and the exponential function elsewhere. A NaN stays a NaN.
GW_SIMD F32 tanh(F32 x) {
  const F32 z = x * x, size = abs(x);
  F32 p = fma(z, set(-5.70498872745e-3f), set(2.06390887954e-2f));
  p = fma(p, z, set(-5.37397155531e-2f));
  p = fma(p, z, set(1.33314422036e-1f));
  p = fma(p, z, set(-3.33332819422e-1f));
  const F32 e = exp_flush(size * -2.0f);
  const F32 far = (1.0f - e) / (1.0f + e);
  return select(size < 0.625f, fma(p * z, x, x), select(x < 0.0f, -far, far));
}
GW_SIMD F64 tanh(F64 x) {
  for (int i = 0; i < kLanes64; ++i) x[i] = __builtin_tanh(x[i]);
  return x;
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
