// AdamW with averages of 8 bits over blocks [first, last) of all rows. It computes in p's type.
//
// Thread rule: pure; several threads may work at the same time on ranges that do not overlap.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/optimizer_kernels.h"

namespace gangway::cpu {

// An average in codes: 256 ascending values, and the 255 limits between them (ops/codes.h).
struct CodedAverage {
  uint8_t* codes;
  float* scales;
  const float *values, *limits;
};

// The factors are those of AdamWStep.
struct AdamW8bitStep {
  Stored p, g, copy;
  CodedAverage m, v;
  int64_t columns, blocks;  // of a row
  double g_factor, beta1, beta2, rate, v_factor, eps, keep;
  RandomRounding rounding;
};

struct AdamW8bitKernels {
  void (*step)(const AdamW8bitStep& step, int64_t first, int64_t last);
};

namespace portable {
extern const AdamW8bitKernels adamw8bit_kernels;
}
namespace avx2 {
extern const AdamW8bitKernels adamw8bit_kernels;
}
namespace avx512 {
extern const AdamW8bitKernels adamw8bit_kernels;
}

}  // namespace gangway::cpu
