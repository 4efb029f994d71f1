// Vectors of floats and doubles for the kernels, with one width for each instruction set. Only files under
// ops/cpu/kernels include it. CMake compiles them once for each instruction set, with GANGWAY_ISA_NAMESPACE
// as its name.
//
// Everything here is in that namespace and always inlined. Otherwise the linker would merge a function that
// the copies share, and a processor without AVX-512 could run the AVX-512 version. For the same reason,
// kernels call no inline function of the standard library or of other layers.
//
// Loops over a row: for_lanes(n, body) calls body(i, Full{}) for whole vectors and body(i, Part{rest}) for
// the tail. load and store take either. Results depend only on the instruction set (its width and fused
// multiply-add).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <utility>

#include "base/dtype.h"

#ifndef GANGWAY_ISA_NAMESPACE
#error "compile kernels through gangway_per_isa of impl/ops/CMakeLists.txt"
#endif

#define GW_SIMD [[gnu::always_inline]] inline
#define GW_BODY __attribute__((always_inline))  // for lambdas that are passed to for_lanes

#if defined(__AVX512F__)
#include "ops/cpu/simd_avx512.h"
#elif defined(__AVX2__)
#include "ops/cpu/simd_avx2.h"
#else
#include "ops/cpu/simd_portable.h"
#endif

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

// simd_<set>.h defines: kBytes; the plain vector types F32, I32, U32, H16 (of half as many bytes), F64 and
// I64; set, fma, max, min and sqrt; narrow_u16 (the low halves of a U32); widen_f16 and narrow_f16 of vectors
// and to_scalar of one f16, with the bits of base/dtype.h.
constexpr int kLanes32 = kBytes / 4;
constexpr int kLanes64 = kBytes / 8;

// The vector type that computes with stored elements of type T, and its scalar type.
template <typename T>
struct Compute {
  using Vector = F32;
  using Scalar = float;
  static constexpr int kLanes = kLanes32;
};
template <>
struct Compute<double> {
  using Vector = F64;
  using Scalar = double;
  static constexpr int kLanes = kLanes64;
};
template <typename T>
using Vec = typename Compute<T>::Vector;
template <typename T>
using Scalar = typename Compute<T>::Scalar;

struct Full {};
struct Part {
  int n;  // valid lanes: at least 1, fewer than all
};

GW_SIMD float to_scalar(float x) { return x; }
GW_SIMD double to_scalar(double x) { return x; }
GW_SIMD float to_scalar(bf16_t x) {
  const uint32_t u = static_cast<uint32_t>(x.bits) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

// Reinterprets the bits as another type of the same size.
template <typename To, typename From>
GW_SIMD To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

GW_SIMD F32 widen_bf16(H16 h) { return bits<F32>(__builtin_convertvector(h, U32) << 16); }
// Rounds to nearest even. A NaN stays a NaN and becomes quiet. Gives the bits of to_bf16 in base/dtype.h.
GW_SIMD H16 narrow_bf16(F32 x) {
  const U32 u = bits<U32>(x);
  const U32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U32 quiet = (u >> 16) | 0x40u;
  const U32 is_nan = bits<U32>(x != x);
  return narrow_u16((quiet & is_nan) | (rounded & ~is_nan));
}

template <typename V, typename T>
GW_SIMD V load_as(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
template <typename V, typename T>
GW_SIMD V load_part_as(const T* p, int n) {
  V v{};
  __builtin_memcpy(&v, p, static_cast<size_t>(n) * sizeof(T));
  return v;
}

GW_SIMD F32 load(const float* p, Full = {}) { return load_as<F32>(p); }
GW_SIMD F64 load(const double* p, Full = {}) { return load_as<F64>(p); }
GW_SIMD F32 load(const bf16_t* p, Full = {}) { return widen_bf16(load_as<H16>(p)); }
GW_SIMD F32 load(const f16_t* p, Full = {}) { return widen_f16(load_as<H16>(p)); }
// Lanes from part.n on are 0, and their memory is not accessed.
GW_SIMD F32 load(const float* p, Part part) { return load_part_as<F32>(p, part.n); }
GW_SIMD F64 load(const double* p, Part part) { return load_part_as<F64>(p, part.n); }
GW_SIMD F32 load(const bf16_t* p, Part part) { return widen_bf16(load_part_as<H16>(p, part.n)); }
GW_SIMD F32 load(const f16_t* p, Part part) { return widen_f16(load_part_as<H16>(p, part.n)); }

GW_SIMD void store(float* p, F32 v, Full = {}) { __builtin_memcpy(p, &v, sizeof(v)); }
GW_SIMD void store(double* p, F64 v, Full = {}) { __builtin_memcpy(p, &v, sizeof(v)); }
GW_SIMD void store(bf16_t* p, F32 v, Full = {}) {
  const H16 h = narrow_bf16(v);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof(h));
}
GW_SIMD void store(f16_t* p, F32 v, Full = {}) {
  const H16 h = narrow_f16(v);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof(h));
}
GW_SIMD void store(float* p, F32 v, Part part) { __builtin_memcpy(p, &v, static_cast<size_t>(part.n) * 4); }
GW_SIMD void store(double* p, F64 v, Part part) { __builtin_memcpy(p, &v, static_cast<size_t>(part.n) * 8); }
GW_SIMD void store(bf16_t* p, F32 v, Part part) {
  const H16 h = narrow_bf16(v);
  __builtin_memcpy(static_cast<void*>(p), &h, static_cast<size_t>(part.n) * 2);
}
GW_SIMD void store(f16_t* p, F32 v, Part part) {
  const H16 h = narrow_f16(v);
  __builtin_memcpy(static_cast<void*>(p), &h, static_cast<size_t>(part.n) * 2);
}

// Returns what a store as T and a load give: f32 rounded to bf16 or f16, or the unchanged value.
template <typename T>
GW_SIMD Vec<T> rounded(Vec<T> v) {
  return v;
}
template <>
GW_SIMD F32 rounded<bf16_t>(F32 v) {
  return widen_bf16(narrow_bf16(v));
}
template <>
GW_SIMD F32 rounded<f16_t>(F32 v) {
  return widen_f16(narrow_f16(v));
}

// Horizontal sum and maximum. They combine halves, which fixes the order.
GW_SIMD float sum(F32 v) {
  float a[kLanes32];
  __builtin_memcpy(a, &v, sizeof(a));
  for (int w = kLanes32 / 2; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  return a[0];
}
GW_SIMD double sum(F64 v) {
  double a[kLanes64];
  __builtin_memcpy(a, &v, sizeof(a));
  for (int w = kLanes64 / 2; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a[i] += a[i + w];
  return a[0];
}
GW_SIMD float max_lane(F32 v) {
  float a[kLanes32];
  __builtin_memcpy(a, &v, sizeof(a));
  for (int w = kLanes32 / 2; w > 0; w /= 2)
    for (int i = 0; i < w; ++i) a[i] = a[i] > a[i + w] ? a[i] : a[i + w];
  return a[0];
}
GW_SIMD double max_lane(F64 v) {
  double m = v[0];
  for (int i = 1; i < kLanes64; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// Returns, in each lane, condition ? a : b. A lane of the condition has all bits set or none, as a comparison
// of vectors gives it.
GW_SIMD F32 select(I32 condition, F32 a, F32 b) {
  return bits<F32>((bits<I32>(a) & condition) | (bits<I32>(b) & ~condition));
}
GW_SIMD F64 select(I64 condition, F64 a, F64 b) {
  return bits<F64>((bits<I64>(a) & condition) | (bits<I64>(b) & ~condition));
}
GW_SIMD F32 abs(F32 v) { return bits<F32>(bits<U32>(v) & 0x7fffffffu); }
GW_SIMD F64 abs(F64 v) { return bits<F64>(bits<I64>(v) & 0x7fffffffffffffffLL); }

// The two halves of an f32 vector as doubles.
struct TwoF64 {
  F64 low, high;
};
GW_SIMD TwoF64 widen_f64(F32 v) {
  struct {
    F32Half low, high;
  } h;
  __builtin_memcpy(&h, &v, sizeof(v));
  return {__builtin_convertvector(h.low, F64), __builtin_convertvector(h.high, F64)};
}
GW_SIMD F32 narrow_f32(TwoF64 v) {
  const struct {
    F32Half low, high;
  } h = {__builtin_convertvector(v.low, F32Half), __builtin_convertvector(v.high, F32Half)};
  F32 out;
  __builtin_memcpy(&out, &h, sizeof(out));
  return out;
}

// The exponential function after Cody and Waite (ln 2 in two parts) with the polynomial of Cephes. `t` has
// round(x / ln 2) in its low bits, since adding 1.5 * 2^23 leaves no bits for a fraction.
struct ExpParts {
  F32 mantissa;  // e^r, |r| <= ln 2 / 2
  I32 exponent;
};
GW_SIMD ExpParts exp_parts(F32 x) {
  constexpr float kRound = 12582912.0f;
  const F32 t = fma(x, set(1.44269504088896341f), set(kRound));
  const F32 n = t - kRound;
  F32 r = fma(n, set(-0.693359375f), x);  // n * 0.693359375 is exact
  r = fma(n, set(2.12194440e-4f), r);
  F32 p = fma(r, set(1.9875691500e-4f), set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  return {p, bits<I32>(t) - 0x4b400000};
}
// Within 2 ulp over the whole range, including denormal results. Infinity and NaN give the same as std::exp.
GW_SIMD F32 exp(F32 x) {
  // If an operand is NaN, max and min return the second one, so a NaN in x is kept.
  const ExpParts e = exp_parts(min(set(89.0f), max(set(-104.0f), x)));
  const I32 half = e.exponent >> 1;
  const F32 a = bits<F32>((half + 127) << 23);
  const F32 b = bits<F32>((e.exponent - half + 127) << 23);
  return e.mantissa * a * b;
}
// A cheaper exp for x <= 0, or a little above (< 88). Returns 0 below -87.7, also for -infinity. A NaN stays
// a NaN.
GW_SIMD F32 exp_flush(F32 x) {
  const ExpParts e = exp_parts(max(set(-88.02f), x));
  return e.mantissa * bits<F32>((e.exponent + 127) << 23);
}
GW_SIMD F64 exp(F64 x) {
  for (int i = 0; i < kLanes64; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}
GW_SIMD F64 exp_flush(F64 x) { return exp(x); }

GW_SIMD float sqrt(float x) { return __builtin_sqrtf(x); }
GW_SIMD double sqrt(double x) { return __builtin_sqrt(x); }
GW_SIMD float log(float x) { return __builtin_logf(x); }
GW_SIMD double log(double x) { return __builtin_log(x); }

namespace detail {
template <int kStep, typename V, size_t... kLane>
GW_SIMD void exchange(V& a, V& b, std::index_sequence<kLane...>) {
  constexpr int n = static_cast<int>(sizeof...(kLane));
  const V low = __builtin_shufflevector(
      a, b,
      (static_cast<int>(kLane) & kStep ? n + static_cast<int>(kLane) - kStep : static_cast<int>(kLane))...);
  const V high = __builtin_shufflevector(
      a, b,
      (static_cast<int>(kLane) & kStep ? n + static_cast<int>(kLane) : static_cast<int>(kLane) + kStep)...);
  a = low;
  b = high;
}
template <int kStep, int kN, typename V>
GW_SIMD void transpose_from(V (&rows)[kN]) {
  for (int i = 0; i < kN; ++i)
    if (!(i & kStep)) exchange<kStep>(rows[i], rows[i + kStep], std::make_index_sequence<kN>{});
  if constexpr (kStep * 2 < kN) transpose_from<kStep * 2>(rows);
}
}  // namespace detail

// Transposes a square matrix of vectors, by exchanging its off-diagonal blocks of 1, 2, 4, ... lanes.
template <int kN, typename V>
GW_SIMD void transpose(V (&rows)[kN]) {
  static_assert(sizeof(V) / sizeof(rows[0][0]) == kN);
  detail::transpose_from<1>(rows);
}

// Calls body(index, Full{} or Part{n}) over [0, n) in steps of the vector of T. The body is a lambda marked
// GW_BODY: for_lanes calls it at two places, so the compiler would not inline it by itself.
template <typename T, typename Body>
GW_SIMD void for_lanes(int64_t n, Body&& body) {
  constexpr int64_t step = Compute<T>::kLanes;
  int64_t i = 0;
  for (; i + step <= n; i += step) body(i, Full{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
