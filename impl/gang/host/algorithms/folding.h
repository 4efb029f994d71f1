// Building blocks of reductions: folding inputs in rank order, block by block, and the ways to write a
// result. On every path each element is a left fold in rank order that is rounded once to its type, so all
// paths and all ranks produce the same bits.
#pragma once

#include <array>

#include "gang/host/call/algorithm.h"
#include "gang/kernels/fold.h"

namespace gangway::host {

constexpr size_t kFoldBlock = 16 << 10;  // bytes folded at a time when the result goes to several places
// Bytes folded at a time when the result goes past the caches: the next block is read while the writes of the
// last one drain.
constexpr size_t kStreamBlock = 2 << 10;

using Inputs = std::array<const void*, kMaxRanks>;

// How a result is written: added to the output, past the caches, or neither.
struct Delivery {
  bool accumulate = false, streams = false;
};

// out (+)= result, `count` elements.
void deliver(void* out, const void* result, size_t count, DType dtype, Delivery how);
FoldArgs fold_of(const Op& op, const Inputs& inputs, int ranks);
// Folds `count` elements into `out`, block by block. `out` may overlap an input.
void fold_to(FoldArgs args, size_t count, unsigned char* out, bool overlaps, Delivery how);

}  // namespace gangway::host
