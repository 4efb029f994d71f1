// What the attention kernels share: their arguments, views of heads, and the mask.
//
// B batch, S sequence, H query heads, G key/value heads, K head width. A block has a tile of rows (queries or
// keys) and iterates over tiles of columns. f32 and f64 are computed by attention.cu and
// attention_backward.cu (attention_tiles.h), bf16 and f16 by attention_tensor_core.cu and
// attention_backward_tensor_core.cu (tensor_core.h).
//
// Thread rule: inside kernels; the functions that launch one from any thread.
#pragma once

#include "ops/cuda/families.h"
#include "ops/cuda/numbers.h"

namespace gangway::cuda {

constexpr int kMostHeadWidth = 256;

// A tensor [B, S, heads, K] whose last dim has stride 1.
template <typename T>
struct Heads {
  T* data;
  int64_t batch_stride, row_stride, head_stride;
  bool packs;  // every row may be accessed by 16 bytes at a time
  __device__ T* row(int64_t b, int64_t s, int64_t h) const {
    return data + b * batch_stride + s * row_stride + h * head_stride;
  }
};
template <typename T>
Heads<T> heads_of(const Tensor& t) {
  if (!t) return {};
  const auto bytes = [](int64_t elements) { return static_cast<uint64_t>(elements) * sizeof(T); };
  return {
      t.data<T>(), t.stride(0), t.stride(1), t.stride(2),
      fits_packs({address(t), bytes(t.stride(0)), bytes(t.stride(1)), bytes(t.stride(2)), bytes(t.dim(3))})};
}

struct Sight {
  bool causal;
  int64_t q_offset, k_offset, q_rows, k_rows;
  __device__ bool sees(int64_t i, int64_t j) const {
    return i < q_rows && j < k_rows && (!causal || k_offset + j <= q_offset + i);
  }
  // Queries up to i see the keys [0, end).
  __device__ int64_t end_of_keys(int64_t i) const {
    if (!causal) return k_rows;
    const int64_t end = q_offset + i - k_offset + 1;
    return end < 0 ? 0 : end < k_rows ? end : k_rows;
  }
  // Returns the first query that sees key j, or q_rows. No earlier query sees a key from j on.
  __device__ int64_t first_query(int64_t j) const {
    if (!causal) return 0;
    const int64_t first = k_offset + j - q_offset;
    return first < 0 ? 0 : first < q_rows ? first : q_rows;
  }
};

template <typename T>
struct Forward {
  Heads<const T> q, k, v;
  Heads<T> out;
  Wide<T>* lse_BHS;  // null: not wanted
  Sight sight;
  int64_t heads, groups;
  int width;
  Wide<T> scale;
};
template <typename T>
void attention_on_tensor_cores(const Forward<T>& p, int64_t batch, Stream& stream);

// A gradient that is written or added to. Its type is T or, if wide, that of the accumulator.
struct Gradient {
  void* data;
  int64_t batch_stride, row_stride, head_stride;
  bool wide, accumulate;
};

template <typename T, typename S>
__device__ void put(const Gradient& to, int64_t b, int64_t s, int64_t h, int e, S value) {
  const int64_t at = b * to.batch_stride + s * to.row_stride + h * to.head_stride + e;
  if (to.wide) {
    S* const place = static_cast<S*>(to.data) + at;
    *place = to.accumulate ? *place + value : value;
  } else {
    static_cast<T*>(to.data)[at] = narrow<T>(value);
  }
}

template <typename T>
struct Backward {
  Heads<const T> q, k, v, out, dout;
  Gradient dq, dk, dv;
  const Wide<T>* lse_BHS;
  Wide<T>* along_BHS;  // for each row the sum of out * dout
  Sight sight;
  int64_t heads, groups;
  int width;
  Wide<T> scale;
};
// Expects along_BHS to be computed.
template <typename T>
void attention_backward_on_tensor_cores(const Backward<T>& p, int64_t batch, Stream& stream);

// Calls body(integral_constant) with the smallest of 64, 128 and 256 that is not below `width`.
template <typename Body>
void with_head_width(const char* what, int64_t width, Body&& body) {
  if (width <= 64) return body(std::integral_constant<int, 64>());
  if (width <= 128) return body(std::integral_constant<int, 128>());
  if (width <= kMostHeadWidth) return body(std::integral_constant<int, kMostHeadWidth>());
  fail(Code::not_supported, what, ": heads are ", width, " wide, but CUDA's kernels take up to ",
       kMostHeadWidth);
}

}  // namespace gangway::cuda
