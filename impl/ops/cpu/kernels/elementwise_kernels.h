// Kernels of ops/cpu/elementwise.h over contiguous runs of elements.
//
// Thread rule: pure; runs that do not overlap may be worked on at the same time.
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

// |x|^p summed over elements [first, last), in f64: the two usual powers have kernels of their own.
enum class NormKind : uint8_t { one, two, power, infinity };

struct ElementwiseKernels {
  void (*cast)(const Elements& x, const MutableElements& y, int64_t first, int64_t last);
  // n elements that lie x_step and y_step apart.
  void (*cast_strided)(const Elements& x, int64_t x_step, const MutableElements& y, int64_t y_step,
                       int64_t n);
  void (*fill)(const MutableElements& y, double value, int64_t first, int64_t last);
  void (*add)(const Elements& x, double factor, const MutableElements& y, int64_t first, int64_t last);
  void (*scale)(const MutableElements& y, double factor, int64_t first, int64_t last);
  // Columns [first, last) of x [rows, ..], rows `row` apart, added to y (f64 beside f64, else f32).
  void (*column_sum)(const Elements& x, int64_t rows, int64_t row, void* y, int64_t first, int64_t last);
  // A NaN among the elements gives NaN, for the infinity norm too.
  double (*norm)(const Elements& x, NormKind kind, double p, int64_t first, int64_t last);
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
