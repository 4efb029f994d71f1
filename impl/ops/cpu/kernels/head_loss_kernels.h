// The row of head and cross-entropy: softmax statistics and gradient, in place in the logits.
//
// Thread rule: pure; rows may be worked on at the same time.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

enum class LossGradient : uint8_t {
  none,  // the logits' contents are undefined afterwards
  same,  // (softmax - onehot(label)) * scale in the logits' dtype
  bf16,  // the same of f32 logits, rounded to bf16 into the first half of the row's memory
};

struct HeadLossKernels {
  // -log softmax(logits)[label] of one row of `vocabulary` logits, f32 or (f64) f64.
  double (*row_f32)(float* logits_V, int64_t vocabulary, int64_t label, double scale, LossGradient gradient);
  double (*row_f64)(double* logits_V, int64_t vocabulary, int64_t label, double scale, LossGradient gradient);
  // Of a part of a row: its maximum; x = exp(x - most) in place, and their sum.
  struct Part {
    double most, sum;
  };
  Part (*part_f32)(float* logits_V, int64_t vocabulary);
  Part (*part_f64)(double* logits_V, int64_t vocabulary);
  void (*scale_f32)(float* x_V, int64_t vocabulary, double factor);
  void (*scale_f64)(double* x_V, int64_t vocabulary, double factor);
};

namespace portable {
extern const HeadLossKernels head_loss_kernels;
}
namespace avx2 {
extern const HeadLossKernels head_loss_kernels;
}
namespace avx512 {
extern const HeadLossKernels head_loss_kernels;
}

}  // namespace gangway::cpu
