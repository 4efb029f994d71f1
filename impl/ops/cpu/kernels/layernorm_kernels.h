// Row kernels of add + layer normalization. Legend: T tokens, D width. Rows are contiguous.
//
// Thread rule: pure; threads share the rows, and each has its own dweight and dbias.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct LayerNormForward {
  const void *x, *residual, *weight, *bias;  // residual may be null
  void *y, *sum, *mean, *rstd;               // sum is written only with residual
  int64_t width;
  double eps;
};
struct LayerNormBackward {
  const void *dy, *x, *weight, *bias, *mean, *rstd, *dsum;  // dsum may be null; bias is read only with y
  void *dx, *y;                                             // may be null; y only with dx
  int64_t width;
};

struct LayerNormKernels {
  // Computes rows [first, last).
  ByDType<void (*)(const LayerNormForward &, int64_t first, int64_t last)> forward;
  // Also adds to dweight and dbias (f32 or f64, [D]), which may be null.
  ByDType<void (*)(const LayerNormBackward &, void *dweight, void *dbias, int64_t first, int64_t last)>
      backward;
};

namespace portable {
extern const LayerNormKernels layernorm_kernels;
}
namespace avx2 {
extern const LayerNormKernels layernorm_kernels;
}
namespace avx512 {
extern const LayerNormKernels layernorm_kernels;
}

}  // namespace gangway::cpu
