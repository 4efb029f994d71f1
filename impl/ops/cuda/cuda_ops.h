// The operations of a CUDA device.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include <memory>
#include <string>

#include "ops/ops.h"

namespace gangway::cuda {

std::unique_ptr<Ops> make_cuda_ops(const std::shared_ptr<Device>& device);

// Implements describe_paths (ops/ops.h).
std::string describe_cuda_paths(Ops& ops);

}  // namespace gangway::cuda
