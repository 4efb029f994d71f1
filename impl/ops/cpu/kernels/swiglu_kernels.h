// Row kernels of SwiGLU. Legend: T tokens, F width. Strides are in elements; y and dy are contiguous.
//
// Thread rule: pure; threads share the rows.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct SwigluRows {
  const void *gate, *up;
  int64_t gate_stride, up_stride;
  void* y;  // may be null in the backward
  int64_t width;
};
struct SwigluBackwardRows {
  SwigluRows forward;
  const void* dy;
  void *dgate, *dup;
  int64_t dgate_stride, dup_stride;
};

struct SwigluKernels {
  // Computes rows [first, last).
  ByDType<void (*)(const SwigluRows&, int64_t first, int64_t last)> forward;
  ByDType<void (*)(const SwigluBackwardRows&, int64_t first, int64_t last)> backward;
};

namespace portable {
extern const SwigluKernels swiglu_kernels;
}
namespace avx2 {
extern const SwigluKernels swiglu_kernels;
}
namespace avx512 {
extern const SwigluKernels swiglu_kernels;
}

}  // namespace gangway::cpu
