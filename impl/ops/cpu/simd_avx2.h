// 32-byte vectors: AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

constexpr int kBytes = 32;
typedef float F32 __attribute__((vector_size(32)));
typedef float F32Half __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(32)));
typedef uint32_t U32 __attribute__((vector_size(32)));
typedef uint16_t H16 __attribute__((vector_size(16)));
typedef double F64 __attribute__((vector_size(32)));
typedef int64_t I64 __attribute__((vector_size(32)));

GW_SIMD F32 set(float x) { return _mm256_set1_ps(x); }
GW_SIMD F64 set(double x) { return _mm256_set1_pd(x); }
GW_SIMD F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
GW_SIMD F64 fma(F64 a, F64 b, F64 c) { return _mm256_fmadd_pd(a, b, c); }
// They return the second operand if either is NaN.
GW_SIMD F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
GW_SIMD F64 max(F64 a, F64 b) { return _mm256_max_pd(a, b); }
GW_SIMD F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
GW_SIMD F64 min(F64 a, F64 b) { return _mm256_min_pd(a, b); }
GW_SIMD F32 sqrt(F32 a) { return _mm256_sqrt_ps(a); }
GW_SIMD F64 sqrt(F64 a) { return _mm256_sqrt_pd(a); }
// The values must be below 2^16.
GW_SIMD H16 narrow_u16(U32 u) {
  const __m256i v = (__m256i)u;
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
  return (H16)_mm256_castsi256_si128(packed);
}
GW_SIMD F32 widen_f16(H16 h) { return _mm256_cvtph_ps((__m128i)h); }
GW_SIMD H16 narrow_f16(F32 x) { return (H16)_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
GW_SIMD float to_scalar(f16_t x) { return _cvtsh_ss(x.bits); }

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
