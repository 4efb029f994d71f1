// The data engines of gangs on CUDA devices.
//
// NCCL chooses the order of a reduction and where it rounds, by the links, the size and its version. Sums,
// means and products of bf16 and f16 may be rounded at each of the W - 1 hops between W ranks. So a sum's
// error is at most (W - 1) u times the sum of the magnitudes, where u is 2^-8 for bf16 and 2^-11 for f16, and
// a partial sum of f16 may overflow. f32 and f64 are reduced in their own type.
//
// NCCL 2.27 and newer sum bf16 and f16 in f32, and round once, in their kernels for symmetric windows: they
// take them for reduce-scatters, and for sums over all ranks, whose input and output are such windows
// (Engine::register_memory), between GPUs of one NVLink domain. The switch (NVLS) sums in f32 there, too. Any
// other algorithm (ring, tree, over a network) rounds at each hop. Which one a call takes is NCCL's choice,
// so the bound above holds for every call.
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
