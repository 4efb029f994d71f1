// Kernels of ops/cpu/elementwise.h for contiguous runs of elements.
//
// Thread rule: pure; several threads may work at the same time on runs that do not overlap.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct Elements {
  const void* data;
  DType dtype;  // f64, f32, bf16 or f16
};
struct MutableElements {
  void* data;
  DType dtype;
};

// The kinds of sums of |x|^p over elements [first, last), in f64. The common powers 1 and 2 have their own
// kernels; `infinity` is max |x|.
enum class NormKind : uint8_t { one, two, power, infinity };

struct ElementwiseKernels {
  void (*cast)(const Elements& x, const MutableElements& y, int64_t first, int64_t last);
  // Converts n elements. Neighbours are x_step and y_step elements apart.
  void (*cast_strided)(const Elements& x, int64_t x_step, const MutableElements& y, int64_t y_step,
                       int64_t n);
  void (*fill)(const MutableElements& y, double value, int64_t first, int64_t last);
  void (*add)(const Elements& x, double factor, const MutableElements& y, int64_t first, int64_t last);
  void (*scale)(const MutableElements& y, double factor, int64_t first, int64_t last);
  // Adds columns [first, last) of x [rows, ..] to y, which is f64 for f64, otherwise f32. Rows of x are `row`
  // elements apart.
  void (*column_sum)(const Elements& x, int64_t rows, int64_t row, void* y, int64_t first, int64_t last);
  // A NaN among the elements gives NaN, for the infinity norm too.
  double (*norm)(const Elements& x, NormKind kind, double p, int64_t first, int64_t last);
  // The sum of ChecksumArgs over words [first, last); `words` are floats for the vectors' loads alone.
  uint32_t (*checksum)(const float* words, uint32_t key, int64_t first, int64_t last);
};

namespace portable {
extern const ElementwiseKernels elementwise_kernels;
}
namespace avx2 {
extern const ElementwiseKernels elementwise_kernels;
}
namespace avx512 {
extern const ElementwiseKernels elementwise_kernels;
}

}  // namespace gangway::cpu
