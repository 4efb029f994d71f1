// Optimizer steps over elements [first, last) of flat shards. They compute in p's type.
//
// Thread rule: pure; several threads may work at the same time on ranges that do not overlap.
#pragma once

#include <cstdint>

#include "ops/cpu/kernels/kernels.h"
#include "ops/random_rounding.h"

namespace gangway::cpu {

struct Stored {
  void* data = nullptr;  // null: absent
  DType dtype = DType::f32;
};

// p = p * keep - rate * m / (sqrt(v) * v_factor + eps). The three factors include lr, the bias corrections
// and weight decay.
struct AdamWStep {
  Stored p, g, m, v, copy;
  double g_factor, beta1, beta2, rate, v_factor, eps, keep;
  RandomRounding rounding;  // of m and v in bf16
};

// p = p * keep - rate * sign(m * beta1 + g' * (1 - beta1)); g' = g * g_factor.
struct LionStep {
  Stored p, g, m, copy;
  double g_factor, beta1, beta2, rate, keep;
  RandomRounding rounding;  // of m in bf16
};

// g' = g * g_factor + weight_decay * p; m = m_factor * m + g', where m_factor is 0 at the first step and
// momentum later.
struct SgdStep {
  Stored p, g, m, copy;
  double g_factor, weight_decay, m_factor, momentum, rate;
  bool nesterov;
};

struct OptimizerKernels {
  void (*adamw)(const AdamWStep& step, int64_t first, int64_t last);
  void (*lion)(const LionStep& step, int64_t first, int64_t last);
  void (*sgd)(const SgdStep& step, int64_t first, int64_t last);
};

namespace portable {
extern const OptimizerKernels optimizer_kernels;
}
namespace avx2 {
extern const OptimizerKernels optimizer_kernels;
}
namespace avx512 {
extern const OptimizerKernels optimizer_kernels;
}

}  // namespace gangway::cpu
