// The model head and cross-entropy, in chunks of tokens.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include "ops/cuda/gemm.h"

namespace gangway::cuda {

void head_loss(Products& products, const HeadLossArgs& args, Stack& temporaries, Stream& stream);

// Adds the sum of losses_C to `loss`, and the number of labels that are not `ignore` to `weight`. Both are
// f64 [1], or absent if not wanted.
void add_losses(const double* losses_C, const int64_t* labels_C, int64_t rows, int64_t ignore,
                const Tensor& loss, const Tensor& weight, Stream& stream);

}  // namespace gangway::cuda
