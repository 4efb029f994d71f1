// Products of bf16 or f16 by the warps of a block on the tensor cores, with tiles in shared memory.
//
// A warp computes 16 rows of a product. A lane holds the elements that ptx.h states: product[j][2 i + c] is
// row lane / 4 + 8 i, column 8 j + lane % 4 * 2 + c. The next product expects its operand a in the same
// lanes, so that weights stay in registers.
//
// Thread rule: inside kernels, by whole warps; load_rows by the whole block.
#pragma once

#include "ops/cuda/attention.h"
#include "ops/cuda/ptx.h"

namespace gangway::cuda {

constexpr float kLog2OfE = 1.44269504f;
constexpr int kTensorCoreWarps = 4;
constexpr int kTensorCoreThreads = kTensorCoreWarps * kWarpSize;
constexpr int kWarpRows = 16;
constexpr int kBlockRows = kTensorCoreWarps * kWarpRows;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ inline int first_row_of_warp() { return static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows; }

// Rows in shared memory, in chunks of 8 elements. Chunk c of row r lies at place c ^ r % 8, because ldmatrix
// reads the same chunk of eight rows at once, and these must lie in different banks.
template <typename T, int rows, int width>
struct Tile {
  static_assert(width % 64 == 0);
  static constexpr int kElements = rows * width;
  T* data;
  __device__ T* chunk(int row, int c) const { return data + row * width + (c ^ row % 8) * 8; }
};

// Starts to copy `rows` rows from row `first` on into the tile, with zeros from row `end` on and beyond the
// used width. The block may read them after cp_async_wait and a barrier.
template <typename T, int rows, int width>
__device__ void load_rows(const Heads<const T>& from, int64_t b, int64_t h, int64_t first, int64_t end,
                          int used, const Tile<T, rows, width>& to) {
  constexpr int chunks = width / 8;
  for (int i = 0; i < rows * chunks / kTensorCoreThreads; ++i) {
    const int at = i * kTensorCoreThreads + static_cast<int>(threadIdx.x);
    const int row = at / chunks, first_element = at % chunks * 8;
    T* const place = to.chunk(row, at % chunks);
    const bool exists = first + row < end && first_element < used;
    const T* const source = exists ? from.row(b, first + row, h) + first_element : from.data;
    if (from.packs) {
      cp_async<16>(place, source, exists);
    } else {
      Pack<T, 8> chunk;
      for (int e = 0; e < 8; ++e)
        chunk.at[e] = exists && first_element + e < used ? source[e] : narrow<T>(0.0f);
      store(place, chunk);
    }
  }
}

// Computes the dot products of the warp's rows of a, which begin at `first`, with all rows of b.
template <typename T, int a_rows, int b_rows, int width>
__device__ void multiply_rows(const Tile<T, a_rows, width>& a, int first, const Tile<T, b_rows, width>& b,
                              float (&product)[b_rows / 8][4]) {
  const int lane = lane_of_warp();
  for (int j = 0; j < b_rows / 8; ++j)
    for (int i = 0; i < 4; ++i) product[j][i] = 0;
  for (int k = 0; k < width / 16; ++k) {
    uint32_t x[4];
    ldmatrix_x4<false>(x, a.chunk(first + lane % 16, 2 * k + lane / 16));
    for (int j = 0; j < b_rows / 16; ++j) {
      uint32_t y[4];
      ldmatrix_x4<false>(y, b.chunk(16 * j + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
      mma_m16n8k16<T>(product[2 * j], x, y[0], y[1]);
      mma_m16n8k16<T>(product[2 * j + 1], x, y[2], y[3]);
    }
  }
}

// Adds weights, rounded to T, times the rows of b to sum.
template <typename T, int rows, int width>
__device__ void add_weighted_rows(const float (&weights)[rows / 8][4], const Tile<T, rows, width>& b,
                                  float (&sum)[width / 8][4]) {
  const int lane = lane_of_warp();
  for (int k = 0; k < rows / 16; ++k) {
    uint32_t x[4];
    for (int i = 0; i < 4; ++i) {
      const float* const pair = weights[2 * k + i / 2] + 2 * (i % 2);
      x[i] = pack_pair<T>(pair[0], pair[1]);
    }
    for (int j = 0; j < width / 16; ++j) {
      uint32_t y[4];
      ldmatrix_x4<true>(y, b.chunk(16 * k + lane % 16, 2 * j + lane / 16));
      mma_m16n8k16<T>(sum[2 * j], x, y[0], y[1]);
      mma_m16n8k16<T>(sum[2 * j + 1], x, y[2], y[3]);
    }
  }
}

// Returns how many of the columns [first, first + count) lie before `end`.
__device__ inline int columns_before(int64_t end, int64_t first, int count) {
  const int64_t before = end - first;
  return before <= 0 ? 0 : before < count ? static_cast<int>(before) : count;
}

// Returns tanh(x) with an absolute error of 2^-22. tanh.approx has 2^-11, which is too much for scores that a
// cap multiplies.
__device__ inline float tanh_approximate(float x) {
  return 1.0f - 2.0f * reciprocal_approximate(1.0f + exp2_approximate(2.0f * kLog2OfE * x));
}

// Folds a value over the four lanes that share a row.
template <typename Fold>
__device__ float quad_fold(float value, Fold fold) {
  value = fold(value, __shfl_xor_sync(kWholeWarp, value, 1));
  return fold(value, __shfl_xor_sync(kWholeWarp, value, 2));
}

}  // namespace gangway::cuda
