// Row kernels of add + RMSNorm. Legend: T tokens, D width. Rows are contiguous.
//
// Thread rule: pure; threads share the rows, and each has its own dweight.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct NormForward {
  const void *x, *residual, *weight;  // residual may be null
  void *y, *sum, *rstd;               // sum is written only with residual
  int64_t width;
  double eps, offset;
  const void *squares;  // not null: the sums of squares of whole rows, of which x has a part
  int64_t whole_width;
};
struct NormBackward {
  const void *dy, *x, *weight, *rstd, *dsum;  // dsum may be null
  void *dx, *y;                               // may be null; y only with dx
  int64_t width;
  double offset;
  const void *dots;  // not null: the sums of x * dy * (offset + weight) of whole rows
  int64_t whole_width;
};
struct RowDot {
  const void *x, *y, *weight;  // weight may be null
  void *out;
  int64_t width;
  double offset;
};

struct NormKernels {
  // Computes rows [first, last).
  ByDType<void (*)(const NormForward &, int64_t first, int64_t last)> forward;
  // Also adds to dweight (f32 or f64, [D]). A null dweight means that it is not wanted.
  ByDType<void (*)(const NormBackward &, void *dweight, int64_t first, int64_t last)> backward;
  ByDType<void (*)(const RowDot &, int64_t first, int64_t last)> row_dot;
};

namespace portable {
extern const NormKernels norm_kernels;
}
namespace avx2 {
extern const NormKernels norm_kernels;
}
namespace avx512 {
extern const NormKernels norm_kernels;
}

}  // namespace gangway::cpu
