// Gangs of CUDA devices.
// Thread rule: an Engine's (gang/engine.h).
#pragma once

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/nccl/arithmetic.h"
#include "gang/rank.h"

namespace gangway::nccl {

// For ranks on CUDA devices, as DataEngines of gang/registry.h. NOT_SUPPORTED: several ranks, and NCCL is missing or older
// than 2.19.
std::vector<std::shared_ptr<Engine>> make_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::span<const std::shared_ptr<Engine>> control,
                                                       const EngineOptions& options, Add add);

}  // namespace gangway::nccl
