// Row kernels of the rotary embedding. Legend: T tokens, K head width. Strides are in elements.
//
// Thread rule: pure; threads share the rows.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

struct RopeRows {
  const void* x;
  void* y;
  int64_t x_stride, y_stride;
  const void *cos, *sin;                 // [positions, half], contiguous, f32 or f64
  const int32_t* positions;              // [sequence], or null: the row's own index
  int64_t heads, width, half, sequence;  // the elements of a head from 2 * half on are copied
  bool inverse;
};

struct RopeKernels {
  ByDType<void (*)(const RopeRows&, int64_t first, int64_t last)> rotate;  // rows [first, last)
};

namespace portable {
extern const RopeKernels rope_kernels;
}
namespace avx2 {
extern const RopeKernels rope_kernels;
}
namespace avx512 {
extern const RopeKernels rope_kernels;
}

}  // namespace gangway::cpu
