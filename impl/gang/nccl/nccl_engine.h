// The data engines of gangs on CUDA devices.
//
// Thread rule: an Engine's (gang/engine.h).
#pragma once

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/nccl/arithmetic.h"
#include "gang/rank.h"

namespace gangway::nccl {

// Makes the engines of ranks on CUDA devices (DataEngines of gang/registry.h). Throws NOT_SUPPORTED if there
// are several ranks and NCCL is missing or older than 2.22.
std::vector<std::shared_ptr<Engine>> make_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::span<const std::shared_ptr<Engine>> control,
                                                       const EngineOptions& options, Add add);

}  // namespace gangway::nccl
