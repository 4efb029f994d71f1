// Activation checkpointing of whole modules: the wrapper keeps its inputs only and runs the inner module
// again in backward, in a frame nested in the caller's. The same bits come out, because a call's seed and its
// inputs are the same.
//
// Thread rule: that of its module.
#pragma once

#include <vector>

#include "nn/module.h"
#include "parallel/options.h"

namespace gangway {

ModulePtr make_recompute(ModulePtr inner);

// Which of `count` blocks are recomputed. every: the k-th, 2k-th, ...; ratio: round(ratio * count), spread
// evenly.
std::vector<bool> recomputed_blocks(const RecomputeOptions& options, size_t count);

}  // namespace gangway
