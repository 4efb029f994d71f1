// 16-byte vectors in the compilers' own notation, which become SSE2 or NEON where available. There is no
// fused multiply-add.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

constexpr int kBytes = 16;
typedef float F32 __attribute__((vector_size(16)));
typedef float F32Half __attribute__((vector_size(8)));
typedef int32_t I32 __attribute__((vector_size(16)));
typedef uint32_t U32 __attribute__((vector_size(16)));
typedef uint16_t H16 __attribute__((vector_size(8)));
typedef double F64 __attribute__((vector_size(16)));
typedef int64_t I64 __attribute__((vector_size(16)));

GW_SIMD F32 set(float x) { return F32{x, x, x, x}; }
GW_SIMD F64 set(double x) { return F64{x, x}; }
GW_SIMD F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }
GW_SIMD F64 fma(F64 a, F64 b, F64 c) { return a * b + c; }
// They return the second operand if either is NaN, like the x86 instructions.
GW_SIMD F32 max(F32 a, F32 b) { return a > b ? a : b; }
GW_SIMD F64 max(F64 a, F64 b) { return a > b ? a : b; }
GW_SIMD F32 min(F32 a, F32 b) { return a < b ? a : b; }
GW_SIMD F64 min(F64 a, F64 b) { return a < b ? a : b; }
GW_SIMD F32 sqrt(F32 a) {
  for (int i = 0; i < 4; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
GW_SIMD F64 sqrt(F64 a) {
  for (int i = 0; i < 2; ++i) a[i] = __builtin_sqrt(a[i]);
  return a;
}
GW_SIMD H16 narrow_u16(U32 u) { return __builtin_convertvector(u, H16); }
GW_SIMD float to_scalar(f16_t x) { return to_f32(x); }
GW_SIMD F32 widen_f16(H16 h) {
  F32 x;
  for (int i = 0; i < 4; ++i) x[i] = to_f32(f16_t{h[i]});
  return x;
}
GW_SIMD H16 narrow_f16(F32 x) {
  H16 h;
  for (int i = 0; i < 4; ++i) h[i] = to_f16(x[i]).bits;
  return h;
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
