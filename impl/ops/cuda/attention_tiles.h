// Tiles of attention in f32 and f64. A block has 16 x 16 threads; thread (tx, ty) computes rows ty + 16 i and
// columns tx + 16 j of a product. Rows in shared memory are padded by one element, so that the elements of a
// column lie in different banks.
//
// Thread rule: inside kernels.
#pragma once

#include "ops/cuda/attention.h"

namespace gangway::cuda {

constexpr int kSide = 16;
constexpr int kAttentionThreads = kSide * kSide;

// The rows and columns of a tile for a type of computation and a head width: as many as fit into shared
// memory.
template <typename S, int most_width>
constexpr int kForwardTile = sizeof(S) == 4 ? (most_width <= 128 ? 64 : 32) : (most_width <= 128 ? 32 : 16);
template <typename S, int most_width>
constexpr int kBackwardTile = sizeof(S) == 4 ? (most_width <= 64    ? 64
                                                : most_width <= 128 ? 32
                                                                    : 16)
                                             : (most_width <= 64 ? 32 : 16);

// Copies rows [first, first + tile) into shared memory, and zeros for rows from `rows` on.
template <int tile, int stride, typename T, typename S>
__device__ void load_tile(const Heads<const T>& from, int64_t b, int64_t h, int64_t first, int64_t rows,
                          int width, S* to) {
  for (int at = static_cast<int>(threadIdx.x); at < tile * width; at += kAttentionThreads) {
    const int r = at / width, e = at % width;
    to[r * stride + e] = first + r < rows ? static_cast<S>(widen(from.row(b, first + r, h)[e])) : S(0);
  }
}

// product[i][j] = sum over e of a[ty + 16 i][e] * b[tx + 16 j][e]
template <int count, int stride, typename S>
__device__ void multiply_rows(const S* a, const S* b, int width, S (&product)[count][count]) {
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) product[i][j] = 0;
  for (int e = 0; e < width; ++e) {
    S x[count], y[count];
    for (int i = 0; i < count; ++i) x[i] = a[(ty + kSide * i) * stride + e];
    for (int j = 0; j < count; ++j) y[j] = b[(tx + kSide * j) * stride + e];
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < count; ++j) product[i][j] += x[i] * y[j];
  }
}

// sum[i][j] += sum over c of weights[ty + 16 i][c] * rows[c][tx + 16 j]. Columns beyond the width get
// garbage, which is never stored.
template <int tile, int columns, int stride, typename S>
__device__ void add_weighted_rows(const S* weights, const S* rows, S (&sum)[tile / kSide][columns]) {
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
  for (int c = 0; c < tile; ++c) {
    S w[tile / kSide], x[columns];
    for (int i = 0; i < tile / kSide; ++i) w[i] = weights[(ty + kSide * i) * (tile + 1) + c];
    for (int j = 0; j < columns; ++j) x[j] = rows[c * stride + tx + kSide * j];
    for (int i = 0; i < tile / kSide; ++i)
      for (int j = 0; j < columns; ++j) sum[i][j] += w[i] * x[j];
  }
}

// Folds a value over the 16 threads with the same ty.
template <typename S, typename Fold>
__device__ S row_fold(S value, Fold fold) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = fold(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

}  // namespace gangway::cuda
