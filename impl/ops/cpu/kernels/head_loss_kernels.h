// Head and cross-entropy of one row: softmax statistics and the gradient, in place in the logits.
//
// Thread rule: pure; several threads may work on different rows at the same time.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

enum class LossGradient : uint8_t {
  none,  // the logits are undefined afterwards
  same,  // (softmax - onehot(label)) * scale in the logits' dtype
  // The same for f32 logits, rounded to bf16 and stored in the first half of the row's memory.
  bf16,
};

struct HeadLossKernels {
  // Returns -log softmax(logits)[label] of one row of `vocabulary` logits.
  double (*row_f32)(float* logits_V, int64_t vocabulary, int64_t label, double scale, LossGradient gradient);
  double (*row_f64)(double* logits_V, int64_t vocabulary, int64_t label, double scale, LossGradient gradient);
  // The result for a part of a row: its maximum, and the sum of x = exp(x - most), which replaces the logits.
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
