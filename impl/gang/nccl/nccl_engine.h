// The data engines of gangs on CUDA devices.
//
// NCCL chooses the order of a reduction and where it rounds, by the links, the size and its version. Sums,
// means and products of bf16 and f16 may be rounded at each of the W - 1 hops between W ranks. So a sum's
// error is at most (W - 1) u times the sum of the magnitudes, where u is 2^-8 for bf16 and 2^-11 for f16, and
// a partial sum of f16 may overflow. f32 and f64 are reduced in their own type.
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
