// Activation checkpointing of whole modules: the wrapper saves only its inputs, and in backward it runs the
// inner module again, in a frame nested in the caller's. The outputs have the same bits, because the inputs
// and the seed are the same.
//
// Thread rule: that of the inner module.
#pragma once

#include <vector>

#include "nn/module.h"
#include "parallel/options.h"

namespace gangway {

ModulePtr make_recompute(ModulePtr inner);

// Returns for each of `count` blocks whether it is recomputed. RecomputeKind::every chooses the k-th, 2k-th,
// ... block; RecomputeKind::ratio chooses round(ratio * count) blocks, spread evenly.
std::vector<bool> recomputed_blocks(const RecomputeOptions& options, size_t count);

}  // namespace gangway
