// Head and cross-entropy in token chunks.
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include "ops/cuda/gemm.h"

namespace gangway::cuda {

void head_loss(Products& products, const HeadLossArgs& args, Stack& temporaries, Stream& stream);

}  // namespace gangway::cuda
