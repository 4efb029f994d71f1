// The blocked matrix product: one thread's slice of c = a b [+ bias] [+ c] with any strides of a and b, so
// that a transposition is a matter of strides. Operands are packed into panels of the accumulator's type,
// which is where bf16 and f16 become f32. After Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008.
//
// Thread rule: pure; each call has its own `panels`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

// a [m, k], b [k, n], c [m, n]; strides in elements, c's columns have stride 1. Accumulates in f64 when c is
// f64, else in f32; then a, b and bias are f32, bf16 or f16, each by its own dtype.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // [n] or null
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
  DType a_dtype = DType::f32, b_dtype = DType::f32, c_dtype = DType::f32, bias_dtype = DType::f32;
  bool accumulate = false;
  void* panels = nullptr;  // kProductBytes, 64-byte aligned
};

// Rows, columns and depth of a block: a packed block of a stays in the second cache, a strip of b in the
// first.
constexpr int64_t kBlockM = 120, kBlockN = 512, kBlockK = 256;
// Rows whose 16-bit results wait in f32 until the last block of k.
constexpr int64_t kResultM = 960;
// Panels of a and b (f64 the larger), a vector between them, a tile, and the waiting f32 results.
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
