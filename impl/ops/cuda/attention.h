// What the attention kernels share: views of heads, tiles in shared memory, who sees whom.
//
// B batch, S sequence, H query heads, G key/value heads, K head width. A block of 16 x 16 threads has a tile of rows (of
// queries, or of keys) and walks over tiles of columns. A thread has rows ty + 16 i and columns tx + 16 j of a product.
// Everything is computed in f32 (f64 for f64). Rows in shared memory are one element apart more than they are long, so
// that a column falls into different banks.
//
// Thread rule: inside kernels.
#pragma once

#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

namespace gangway::cuda {

constexpr int kSide = 16;
constexpr int kAttentionThreads = kSide * kSide;
constexpr int kMostHeadWidth = 256;

// Four dims [B, S, heads, K] with stride 1 in the last.
template <typename T>
struct Heads {
  T* data;
  int64_t batch_stride, row_stride, head_stride;
  __device__ T* row(int64_t b, int64_t s, int64_t h) const {
    return data + b * batch_stride + s * row_stride + h * head_stride;
  }
};
template <typename T>
Heads<T> heads_of(const Tensor& t) {
  return {t ? t.data<T>() : nullptr, t ? t.stride(0) : 0, t ? t.stride(1) : 0, t ? t.stride(2) : 0};
}

// Rows and columns of a tile, by head width and by what is computed with: as many as have a place.
template <typename S, int most_width>
constexpr int kForwardTile = sizeof(S) == 4 ? (most_width <= 128 ? 64 : 32) : (most_width <= 128 ? 32 : 16);
template <typename S, int most_width>
constexpr int kBackwardTile = sizeof(S) == 4 ? (most_width <= 64    ? 64
                                                : most_width <= 128 ? 32
                                                                    : 16)
                                             : (most_width <= 64 ? 32 : 16);

struct Sight {
  bool causal;
  int64_t q_offset, k_offset, q_rows, k_rows;
  __device__ bool sees(int64_t i, int64_t j) const {
    return i < q_rows && j < k_rows && (!causal || k_offset + j <= q_offset + i);
  }
  // The keys that queries up to i see are [0, end).
  __device__ int64_t end_of_keys(int64_t i) const {
    if (!causal) return k_rows;
    const int64_t end = q_offset + i - k_offset + 1;
    return end < 0 ? 0 : end < k_rows ? end : k_rows;
  }
  // The queries that see keys from j on are [first, q_rows).
  __device__ int64_t first_query(int64_t j) const {
    if (!causal) return 0;
    const int64_t first = k_offset + j - q_offset;
    return first < 0 ? 0 : first < q_rows ? first : q_rows;
  }
};

// Rows [first, first + tile) into shared memory; beyond `rows` zeros.
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

// sum[i][j] += sum over c of weights[ty + 16 i][c] * rows[c][tx + 16 j]; columns beyond the width are garbage that is
// never stored.
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

// Over the 16 threads of a row of threads.
template <typename S, typename Fold>
__device__ S row_fold(S value, Fold fold) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = fold(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

// body(integral_constant) with the least width of 64, 128, 256 that holds `width`.
template <typename Body>
void with_head_width(const char* what, int64_t width, Body&& body) {
  if (width <= 64) return body(std::integral_constant<int, 64>());
  if (width <= 128) return body(std::integral_constant<int, 128>());
  if (width <= kMostHeadWidth) return body(std::integral_constant<int, kMostHeadWidth>());
  fail(Code::not_supported, what, ": heads are ", width, " wide, but CUDA's kernels take up to ",
       kMostHeadWidth);
}

}  // namespace gangway::cuda
