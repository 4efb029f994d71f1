// Head and cross-entropy of one row: softmax statistics and the gradient, in place in the logits.
//
// Thread rule: pure; several threads may work on different rows at the same time.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"

namespace gangway::cpu {

enum class LossGradient : uint8_t {
  none,  // the logits are undefined afterwards
  same,  // the gradient of scale * loss in the logits' dtype
  // The same for f32 logits, rounded to bf16 and stored in the first half of the row's memory.
  bf16,
};

// What a row's loss has besides cross-entropy (LossTerms), and the factor of its gradient.
struct RowTerms {
  double scale = 1, weight = 1;
  double cap = 0, label_smoothing = 0, z_loss = 0;
};
struct RowLoss {
  double loss, log_prob;  // with all terms and the weight; the log-probability of the label
};

// Statistics of a part of a row.
struct RowPart {
  double most, sum;  // the maximum, and the sum of exp(x - most)
  double logit_sum;  // 0 if not wanted
  double at_label;   // the label's logit
};
// The gradient of a part: exp(x - shift) * factor - minus, times the derivative of the cap.
struct PartGradient {
  double shift = 0;  // of a part with a cap, whose logits loss_part has kept
  double factor = 1, minus = 0, cap = 0;
};

struct HeadLossKernels {
  // The loss of one row of `vocabulary` logits.
  RowLoss (*row_f32)(float* logits_V, int64_t vocabulary, int64_t label, const RowTerms& terms,
                     LossGradient gradient);
  RowLoss (*row_f64)(double* logits_V, int64_t vocabulary, int64_t label, const RowTerms& terms,
                     LossGradient gradient);
  // Replaces the logits by exp(x - most), or, with a cap, by the capped logits, which the gradient needs.
  // `label` is an index in the part, or -1: at_label is not wanted.
  RowPart (*part_f32)(float* logits_V, int64_t vocabulary, int64_t label, double cap, bool wants_sum);
  RowPart (*part_f64)(double* logits_V, int64_t vocabulary, int64_t label, double cap, bool wants_sum);
  // Replaces what `part` left by the gradient.
  void (*gradient_f32)(float* x_V, int64_t vocabulary, const PartGradient& gradient);
  void (*gradient_f64)(double* x_V, int64_t vocabulary, const PartGradient& gradient);
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
