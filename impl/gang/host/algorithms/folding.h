// What reductions are made of: inputs in rank order folded block by block, and the ways in which a result is written.
// Whatever the path, every element is a left fold in rank order, rounded once to its type, so that all paths and all
// ranks have the same bits.
#pragma once

#include <array>

#include "gang/host/call/algorithm.h"
#include "gang/host/kernels/fold.h"

namespace gangway::host {

constexpr size_t kFoldBlock = 16 << 10;  // bytes folded at a time when the result goes to more than one place
constexpr size_t kStreamBlock = 2 << 10;  // past the caches: reads go on while the last block's writes drain

using Inputs = std::array<const void*, kMaxRanks>;

// How a result is written: added, past the caches, or neither.
struct Delivery {
  bool accumulate = false, streams = false;
};

// out (+)= result, `count` elements.
void deliver(void* out, const void* result, size_t count, DType dtype, Delivery how);
FoldArgs fold_of(const Op& op, const Inputs& inputs, int ranks);
// Folds `count` elements into `out`, which may overlap an input, block by block.
void fold_to(FoldArgs args, size_t count, unsigned char* out, bool overlaps, Delivery how);

}  // namespace gangway::host
