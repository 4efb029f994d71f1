// The operations of products in FP8 (ops/fp8.h) on a GPU, but for the products themselves (gemm.h). The caller
// has checked the arguments and made the stream's device current.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include "device/cuda/cuda_device.h"
#include "ops/fp8.h"

namespace gangway::cuda {

void fp8_scale(const Fp8ScaleArgs& args, Stream& stream);
void fp8_codes(const Fp8CodesArgs& args, Stream& stream);

}  // namespace gangway::cuda
