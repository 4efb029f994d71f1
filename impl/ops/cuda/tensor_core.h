// Products of bf16 or f16 by the warps of a block on the tensor cores, with tiles in shared memory.
//
// A warp computes 16 rows of a product, or several such sets of rows at once, which share each load of the
// other operand. A lane holds the elements that ptx.h states: product[m][j][2 i + c] is row
// 16 m + lane / 4 + 8 i, column 8 j + lane % 4 * 2 + c. The next product expects its operand a in the same
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
constexpr int kSetRows = 16;
template <int sets>
constexpr int kBlockRows = kTensorCoreWarps* kSetRows* sets;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarpSize; }
template <int sets>
__device__ unsigned first_row_of_warp() {
  return threadIdx.x / kWarpSize * (kSetRows * sets);
}

// Rows in shared memory, in chunks of 8 elements. Chunk c of row r lies at place c ^ r % 8, because ldmatrix
// reads the same chunk of eight rows at once, and these must lie in different banks.
template <typename T, int rows, int width>
struct Tile {
  static_assert(width % 64 == 0);
  static constexpr int kElements = rows * width;
  T* data;
};

// A thread's own row and chunk of a tile, and the chunks at constant distances from it. An address takes one
// instruction, or none where another one differs from it by a constant.
template <typename T, int width>
class Place {
 public:
  __device__ Place(T* tile, unsigned row, unsigned chunk)
      : row_(tile + row * width), place_(static_cast<int>(chunk ^ row % 8)) {}
  // `rows` and `chunks` are constants of unrolled loops. They must share no bit with the own row and chunk, so
  // that a sum is the same as an exclusive or.
  __device__ T* at(int rows, int chunks) const {
    const int moved = chunks ^ rows % 8;
    return row_ + rows * width + ((place_ ^ moved % 8) + moved / 8 * 8) * 8;
  }

 private:
  T* row_;
  int place_;
};

// Returns how many of the columns [first, first + count) lie before `end`.
__device__ inline int columns_before(int64_t end, int64_t first, int count) {
  const int64_t before = end - first;
  return before <= 0 ? 0 : before < count ? static_cast<int>(before) : count;
}

// Starts to copy `rows` rows from row `first` on into the tile, with zeros from row `end` on and beyond the
// used width. The block may read them after cp_async_wait and a barrier.
template <typename T, int rows, int width>
__device__ void load_rows(const Heads<const T>& from, int64_t b, int64_t h, int64_t first, int64_t end,
                          int used, const Tile<T, rows, width>& to) {
  constexpr int chunks = width / 8, step = kTensorCoreThreads / chunks;
  static_assert(rows % step == 0);
  const unsigned thread = hidden(threadIdx.x) % kTensorCoreThreads;
  const unsigned row = thread / chunks, element = thread % chunks * 8;
  const int exist = columns_before(end, first, rows) - static_cast<int>(row);  // rows from this one on
  const T* source = from.row(b, first + row, h) + element;
  const int64_t stride = step * from.row_stride;
  const Place<T, width> place(to.data, row, element / 8);
  if (from.packs) {
#pragma unroll
    for (int i = 0; i < rows; i += step, source += stride)
      cp_async<16>(place.at(i, 0), source, i < exist && static_cast<int>(element) < used);
    return;
  }
#pragma unroll 1  // rare, so that its code is kept small
  for (int i = 0; i < rows; i += step, source += stride) {
    Pack<T, 8> pack;
    for (int e = 0; e < 8; ++e)
      pack.at[e] = i < exist && static_cast<int>(element) + e < used ? source[e] : narrow<T>(0.0f);
    store(place.at(i, 0), pack);
  }
}

// Computes the dot products of the warp's rows of a, which begin at `first`, with all rows of b.
template <int sets, typename T, int a_rows, int b_rows, int width>
__device__ void multiply_rows(const Tile<T, a_rows, width>& a, unsigned first,
                              const Tile<T, b_rows, width>& b, float (&product)[sets][b_rows / 8][4]) {
  const unsigned lane = hidden(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int m = 0; m < sets; ++m)
#pragma unroll
    for (int j = 0; j < b_rows / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) product[m][j][i] = 0;
        // Two sets leave too few registers for the operands of all columns at once.
#pragma unroll(sets == 1 ? width / 64 : 1)
  for (int block = 0; block < width; block += 64) {
    const Place<T, width> of_a(a.data + block, first + lane % 16, lane / 16),
        of_b(b.data + block, lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t x[sets][4];
#pragma unroll
      for (int m = 0; m < sets; ++m) ldmatrix_x4<false>(x[m], of_a.at(16 * m, 2 * k));
#pragma unroll
      for (int j = 0; j < b_rows / 16; ++j) {
        uint32_t y[4];
        ldmatrix_x4<false>(y, of_b.at(16 * j, 2 * k));
#pragma unroll
        for (int m = 0; m < sets; ++m) {
          mma_m16n8k16<T>(product[m][2 * j], x[m], y[0], y[1]);
          mma_m16n8k16<T>(product[m][2 * j + 1], x[m], y[2], y[3]);
        }
      }
    }
  }
}

// Rounds weights to T and packs them as operand a: elements 2 i and 2 i + 1 of from[m][j] become
// to[m][j / 2][j % 2 * 2 + i].
template <typename T, int sets, int count>
__device__ void pack_weights(const float (&from)[sets][count][4], uint32_t (&to)[sets][count / 2][4]) {
#pragma unroll
  for (int m = 0; m < sets; ++m)
#pragma unroll
    for (int j = 0; j < count; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        to[m][j / 2][j % 2 * 2 + i] = pack_pair<T>(from[m][j][2 * i], from[m][j][2 * i + 1]);
}

// Adds packed weights times the rows of b to sum.
template <int sets, typename T, int rows, int width>
__device__ void add_weighted_rows(const uint32_t (&weights)[sets][rows / 16][4],
                                  const Tile<T, rows, width>& b, float (&sum)[sets][width / 8][4]) {
  const unsigned lane = hidden(threadIdx.x) % kWarpSize;
  const Place<T, width> of_b(b.data, lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < rows / 16; ++k)
#pragma unroll
    for (int j = 0; j < width / 16; ++j) {
      uint32_t y[4];
      ldmatrix_x4<true>(y, of_b.at(16 * k, 2 * j));
#pragma unroll
      for (int m = 0; m < sets; ++m) {
        mma_m16n8k16<T>(sum[m][2 * j], weights[m][k], y[0], y[1]);
        mma_m16n8k16<T>(sum[m][2 * j + 1], weights[m][k], y[2], y[3]);
      }
    }
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
