// The number of ranks, as the command line says it.
//
// Thread rule: pure functions of their arguments and this host.
#pragma once

#include <string>

namespace gangway::tools {

constexpr int kMostRanks = 4096;

// Reads "4", "cpu" (a rank for each processor that this process may use), "gpu" (for each NVIDIA GPU) or
// "auto" (for each GPU, and for each processor on a host without GPUs). std::invalid_argument: any other
// word, or a number outside of 1 to kMostRanks.
int rank_count(const std::string& word);

}  // namespace gangway::tools
