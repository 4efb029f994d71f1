// What the norms share: a block computes one row at a time, and each thread the same columns of each row.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

namespace gangway::cuda {

constexpr int64_t kMostPartials = 256;  // rows of partial sums of a weight's gradient

// Returns a multiple of the warp size, with about one access for each thread.
inline int threads_for(int64_t width, int n) {
  return static_cast<int>(
      std::clamp<int64_t>(pieces(pieces(width, n), kWarpSize) * kWarpSize, kWarpSize, 512));
}

inline void check_width(const char* what, int64_t width, size_t item, size_t shared) {
  if (const size_t most = shared_memory_of_block(); shared > most)
    fail(Code::not_supported, what, ": a row of ", width, " elements of ", item, " bytes needs ", shared,
         " bytes of shared memory, and this GPU has ", most);
}

}  // namespace gangway::cuda
