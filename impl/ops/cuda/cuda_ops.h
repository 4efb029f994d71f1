// The operations of a CUDA device.
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <memory>

#include "ops/ops.h"

namespace gangway::cuda {

std::unique_ptr<Ops> make_cuda_ops(const std::shared_ptr<Device>& device);

}  // namespace gangway::cuda
