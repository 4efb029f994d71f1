// Row kernels of SwiGLU and its kind. Legend: T tokens, F width. Strides are in elements; y and dy are
// contiguous.
//
// Thread rule: pure; threads share the rows.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/activation_kernels.h"

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

// Computes rows [first, last).
using SwigluKernel = ByDType<void (*)(const SwigluRows&, int64_t first, int64_t last)>;
using SwigluBackwardKernel = ByDType<void (*)(const SwigluBackwardRows&, int64_t first, int64_t last)>;

struct SwigluKernels {
  ByActivation<SwigluKernel> forward;
  ByActivation<SwigluBackwardKernel> backward;
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
