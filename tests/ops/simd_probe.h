// The vector wrapper of one instruction set over arrays, so that a test can look at it from outside.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace gangway::cpu {

struct SimdProbe {
  int bytes;
  void (*exp)(const float* x, float* y, int64_t n);
  void (*exp_flush)(const float* x, float* y, int64_t n);
  void (*exp_f64)(const double* x, double* y, int64_t n);
  void (*narrow)(const float* x, bf16_t* y, int64_t n);
  void (*widen)(const bf16_t* x, float* y, int64_t n);
  void (*narrow_f16)(const float* x, f16_t* y, int64_t n);
  void (*widen_f16)(const f16_t* x, float* y, int64_t n);
  float (*scalar_f16)(f16_t x);
  void (*round_trip_f64)(const float* x, float* y, int64_t n);  // through two f64 halves; whole vectors only
  float (*sum)(const float* x);                                 // one vector
  float (*max_lane)(const float* x);
  void (*transpose)(float* square);       // lanes x lanes, in place
  void (*transpose_f64)(double* square);  // lanes x lanes, in place
};

namespace portable {
extern const SimdProbe simd_probe;
}
namespace avx2 {
extern const SimdProbe simd_probe;
}
namespace avx512 {
extern const SimdProbe simd_probe;
}

}  // namespace gangway::cpu
