// The model head and cross-entropy on the CPU, in chunks of tokens. Callers have checked the arguments
// (ops/check.h).
//
// Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void head_loss(Context& context, const HeadLossArgs& args, Stack& temporaries);

// Read and write an element of a contiguous tensor of f32 or f64: a token's weight or log-probability.
inline double real_at(const Tensor& t, int64_t i) {
  return t.dtype() == DType::f64 ? t.data<double>()[i] : static_cast<double>(t.data<float>()[i]);
}
inline void set_real(const Tensor& t, int64_t i, double value) {
  if (t.dtype() == DType::f64)
    t.data<double>()[i] = value;
  else
    t.data<float>()[i] = static_cast<float>(value);
}

}  // namespace gangway::cpu
