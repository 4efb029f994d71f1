// The model head and cross-entropy, in chunks of tokens.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include "ops/cuda/gemm.h"

namespace gangway::cuda {

void head_loss(Products& products, const HeadLossArgs& args, Stack& temporaries, Stream& stream);

// Returns workspace for the loss of each row.
double* losses_of(int64_t rows, Stream& stream);

}  // namespace gangway::cuda
