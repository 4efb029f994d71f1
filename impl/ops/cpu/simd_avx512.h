// 64-byte vectors: AVX-512 F, BW, DQ, VL, with F16C for single elements.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

constexpr int kBytes = 64;
typedef float F32 __attribute__((vector_size(64)));
typedef float F32Half __attribute__((vector_size(32)));
typedef int32_t I32 __attribute__((vector_size(64)));
typedef uint32_t U32 __attribute__((vector_size(64)));
typedef uint16_t H16 __attribute__((vector_size(32)));
typedef double F64 __attribute__((vector_size(64)));
typedef int64_t I64 __attribute__((vector_size(64)));

GW_SIMD F32 set(float x) { return _mm512_set1_ps(x); }
GW_SIMD F64 set(double x) { return _mm512_set1_pd(x); }
GW_SIMD F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
GW_SIMD F64 fma(F64 a, F64 b, F64 c) { return _mm512_fmadd_pd(a, b, c); }
// These are the zero-masked forms, since g++ 12 warns that the plain forms start from an undefined vector.
// max and min return the second operand if either is NaN.
GW_SIMD F32 max(F32 a, F32 b) { return _mm512_maskz_max_ps(0xffff, a, b); }
GW_SIMD F64 max(F64 a, F64 b) { return _mm512_maskz_max_pd(0xff, a, b); }
GW_SIMD F32 min(F32 a, F32 b) { return _mm512_maskz_min_ps(0xffff, a, b); }
GW_SIMD F64 min(F64 a, F64 b) { return _mm512_maskz_min_pd(0xff, a, b); }
GW_SIMD F32 sqrt(F32 a) { return _mm512_maskz_sqrt_ps(0xffff, a); }
GW_SIMD F64 sqrt(F64 a) { return _mm512_maskz_sqrt_pd(0xff, a); }
GW_SIMD H16 narrow_u16(U32 u) { return __builtin_convertvector(u, H16); }
GW_SIMD F32 widen_f16(H16 h) { return _mm512_maskz_cvtph_ps(0xffff, (__m256i)h); }
GW_SIMD H16 narrow_f16(F32 x) { return (H16)_mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT); }
GW_SIMD float to_scalar(f16_t x) { return _cvtsh_ss(x.bits); }

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
