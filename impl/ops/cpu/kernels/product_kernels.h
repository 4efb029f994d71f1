// The blocked matrix product: one thread's slice of c = a b [+ bias] [+ c]. a and b may have any strides, so
// a transposition only swaps strides. Operands are packed into panels of the accumulator's type, which
// converts bf16 and f16 to f32. After Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008.
//
// Thread rule: pure; each call has its own `panels`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

// a [m, k], b [k, n], c [m, n]. Strides are in elements; c's columns have stride 1. Sums are in f64 if c is
// f64, otherwise in f32. In the latter case a, b and bias are each f32, bf16 or f16.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // [n] or null
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
  DType a_dtype = DType::f32, b_dtype = DType::f32, c_dtype = DType::f32, bias_dtype = DType::f32;
  bool accumulate = false;
  void* panels = nullptr;  // kProductBytes, aligned to 64 bytes
};

// The rows, columns and depth of a block. A packed block of a fits in the second-level cache, and a strip of
// b in the first-level cache.
constexpr int64_t kBlockM = 120, kBlockN = 512, kBlockK = 256;
// The number of rows whose 16-bit results are kept in f32 until the last block of k.
constexpr int64_t kResultM = 960;
// Space for the panels of a and b (largest for f64), a vector between them, a tile, and the f32 results of
// kResultM rows.
constexpr size_t kProductBytes = (kBlockM + kBlockN) * kBlockK * 8 + 4096 + kResultM * kBlockN * 4;

struct ProductKernels {
  void (*product)(const Product& product);
};

namespace portable {
extern const ProductKernels product_kernels;
}
namespace avx2 {
extern const ProductKernels product_kernels;
}
namespace avx512 {
extern const ProductKernels product_kernels;
}

}  // namespace gangway::cpu
