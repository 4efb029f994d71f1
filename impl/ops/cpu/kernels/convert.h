// Reads and writes blocks of elements as the type S in which a kernel computes, whatever type they are stored
// as. Only kernels include it.
//
// Thread rule: pure functions; memory is the caller's.
#pragma once

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

// The elements of a block. A few arrays of this size fit in the first-level cache.
constexpr int64_t kConvertBlock = 512;

template <typename S>
constexpr DType kDTypeOf = sizeof(S) == 8 ? DType::f64 : DType::f32;

template <typename S>
GW_SIMD void write_one(S x, double* p) {
  *p = static_cast<double>(x);
}
template <typename S>
GW_SIMD void write_one(S x, float* p) {
  *p = static_cast<float>(x);
}
template <typename S, typename T>
GW_SIMD void write_one(S x, T* p) {
  store(p, set(static_cast<float>(x)), Part{1});
}

// y[i] = x[i]. Conversions between f32 and the 16-bit types use vectors, the others go element by element.
template <typename X, typename Y>
void convert(const X* x, Y* y, int64_t n) {
  if constexpr (sizeof(X) <= 4 && sizeof(Y) <= 4) {
    for_lanes<float>(
        n, [&](int64_t i, auto part)
               __attribute__((always_inline)) { store(y + i, load(x + i, part), part); });
  } else if constexpr (sizeof(Y) == 2) {
    float through[kConvertBlock];
    for (int64_t i = 0; i < n; i += kConvertBlock) {
      const int64_t count = n - i < kConvertBlock ? n - i : kConvertBlock;
      for (int64_t j = 0; j < count; ++j) through[j] = static_cast<float>(x[i + j]);
      convert(through, y + i, count);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) write_one(to_scalar(x[i]), y + i);
  }
}

// Calls body(typed pointer) for memory of a floating dtype.
template <typename Body>
GW_SIMD void typed(DType dtype, const void* p, Body&& body) {
  if (dtype == DType::f32) {
    body(static_cast<const float*>(p));
  } else if (dtype == DType::bf16) {
    body(static_cast<const bf16_t*>(p));
  } else if (dtype == DType::f64) {
    body(static_cast<const double*>(p));
  } else {
    body(static_cast<const f16_t*>(p));
  }
}
template <typename Body>
GW_SIMD void typed(DType dtype, void* p, Body&& body) {
  if (dtype == DType::f32) {
    body(static_cast<float*>(p));
  } else if (dtype == DType::bf16) {
    body(static_cast<bf16_t*>(p));
  } else if (dtype == DType::f64) {
    body(static_cast<double*>(p));
  } else {
    body(static_cast<f16_t*>(p));
  }
}

// Returns elements [at, at + n) as S: in place if they are stored as S, otherwise converted into `buffer`.
template <typename S>
const S* read_block(DType dtype, const void* from, int64_t at, int64_t n, S* buffer) {
  if (dtype == kDTypeOf<S>) return static_cast<const S*>(from) + at;
  typed(dtype, from, [&](const auto* x) { convert(x + at, buffer, n); });
  return buffer;
}
// Like read_block, for a block that is read and written. write_block stores it.
template <typename S>
S* open_block(DType dtype, void* from, int64_t at, int64_t n, S* buffer) {
  return const_cast<S*>(read_block<S>(dtype, from, at, n, buffer));
}
template <typename S>
void write_block(DType dtype, void* to, int64_t at, int64_t n, const S* block) {
  if (dtype == kDTypeOf<S> && static_cast<const S*>(to) + at == block) return;
  typed(dtype, to, [&](auto* y) { convert(block, y + at, n); });
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
