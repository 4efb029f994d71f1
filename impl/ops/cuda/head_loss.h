// The model head and cross-entropy, in chunks of tokens.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include "ops/cuda/gemm.h"

namespace gangway::cuda {

void head_loss(Products& products, const HeadLossArgs& args, Stack& temporaries, Stream& stream);

// Returns workspace for the loss of each row and, after all of them, the weight of each row.
double* losses_of(int64_t rows, Stream& stream);
// Adds the sum of the losses to `loss`, and that of the weights to `weight`. Both are f64 [1], or absent if not
// wanted.
void add_losses(const double* losses_2C, int64_t rows, const Tensor& loss, const Tensor& weight,
                Stream& stream);

}  // namespace gangway::cuda
