// Grids over rows of packs of n neighbouring elements. A block has a rectangle of packs, and a thread one
// pack of each of its rows. So a thread divides once, in 32 bits: a division in 64 bits takes a GPU about as
// long as the access to a pack.
//
// Thread rule: row_grid from any thread; for_row_packs inside kernels.
#pragma once

#include "ops/cuda/launch.h"

namespace gangway::cuda {

struct RowGrid {
  unsigned packs;                    // of a row
  unsigned block_packs, block_rows;  // of the rectangle of a block
};

// Calls body(row, pack) for the thread's packs. All threads of a grid of row_launch together cover them all.
template <typename Body>
__device__ inline void for_row_packs(const RowGrid& g, int64_t rows, Body&& body) {
  const unsigned pack = blockIdx.x * g.block_packs + threadIdx.x % g.block_packs;
  const unsigned in_block = threadIdx.x / g.block_packs;
  if (pack >= g.packs || in_block >= g.block_rows) return;
  const int64_t step = static_cast<int64_t>(gridDim.y) * g.block_rows;
#pragma unroll 1  // few threads have a second row, and the number of rows would be a division in 64 bits
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * g.block_rows + in_block; row < rows; row += step)
    body(row, pack);
}

// Returns the rectangles for rows of `packs` packs. Neighbouring threads have neighbouring packs, and few
// threads have none.
inline RowGrid row_grid(int64_t packs) {
  constexpr int64_t kMostThreads = 256;
  const int64_t columns = std::max<int64_t>(1, pieces(packs, kMostThreads));
  const int64_t block_packs = std::max<int64_t>(1, pieces(packs, columns));
  return {static_cast<unsigned>(packs), static_cast<unsigned>(block_packs),
          static_cast<unsigned>(kMostThreads / block_packs)};
}
// `layers` is the third dimension of the grid, which the kernel uses as it likes.
inline Grid row_launch(const RowGrid& g, int64_t rows, int64_t layers = 1) {
  const int64_t threads = static_cast<int64_t>(g.block_packs) * g.block_rows;
  const auto limited = [](int64_t count) {
    constexpr int64_t kMostBlocks = 65535;  // of the second and third dimension
    return static_cast<unsigned>(std::clamp<int64_t>(count, 1, kMostBlocks));
  };
  return {dim3(blocks(pieces(g.packs, g.block_packs)), limited(pieces(rows, g.block_rows)), limited(layers)),
          static_cast<int>(pieces(threads, kWarpSize) * kWarpSize), 0};
}

}  // namespace gangway::cuda
