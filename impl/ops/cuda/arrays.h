// Flat arrays whose dtype is an argument of the kernel. One kernel serves every combination of dtypes. The
// branch on the dtype costs nothing beside the access to memory, because all threads take the same one.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cuda/numbers.h"

namespace gangway::cuda {

struct Array {
  void* data = nullptr;  // null: absent
  DType dtype = DType::f32;
};
inline Array array_of(const Tensor& t) { return t ? Array{t.raw(), t.dtype()} : Array{}; }

// Reads n elements from element `at` on, which must be a multiple of n.
template <int n, typename S>
__device__ inline Pack<S, n> read(const Array& a, int64_t at) {
  const auto widened = [&](auto type) {
    using T = decltype(type);
    const Pack<T, n> stored = load<n>(static_cast<const T*>(a.data) + at);
    Pack<S, n> pack;
    for (int i = 0; i < n; ++i) pack.at[i] = static_cast<S>(widen(stored.at[i]));
    return pack;
  };
  switch (a.dtype) {
    case DType::f64: return widened(double{});
    case DType::bf16: return widened(Bf16{});
    case DType::f16: return widened(Half{});
    default: return widened(float{});
  }
}
template <int n, typename S>
__device__ inline void write(const Array& a, int64_t at, const Pack<S, n>& pack) {
  const auto narrowed = [&](auto type) {
    using T = decltype(type);
    Pack<T, n> stored;
    for (int i = 0; i < n; ++i) stored.at[i] = narrow<T>(pack.at[i]);
    store<n>(static_cast<T*>(a.data) + at, stored);
  };
  switch (a.dtype) {
    case DType::f64: return narrowed(double{});
    case DType::bf16: return narrowed(Bf16{});
    case DType::f16: return narrowed(Half{});
    default: return narrowed(float{});
  }
}

// Calls body(std::integral_constant<int, n>(), at) for the thread's packs of n elements, and then
// body(std::integral_constant<int, 1>(), at) for its single elements. All threads together cover [0, count).
template <int n, typename Body>
__device__ inline void for_elements(int64_t count, Body&& body) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x, packs = count / n;
  for (int64_t i = thread; i < packs; i += threads) body(std::integral_constant<int, n>(), i * n);
  for (int64_t i = packs * n + thread; i < count; i += threads) body(std::integral_constant<int, 1>(), i);
}

constexpr int kFlatThreads = 256;
inline Grid flat_grid(int64_t count, int n) {
  return {blocks(pieces(count / n + n, kFlatThreads)), kFlatThreads, 0};
}

}  // namespace gangway::cuda
