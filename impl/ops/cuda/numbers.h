// Element types inside kernels. Kernels compute in f32 on stored bf16, f16 and f32, and in f64 on f64. One
// access moves several elements, up to 16 bytes, if their addresses allow it.
//
// Thread rule: pure functions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <initializer_list>
#include <type_traits>

#include "ops/cuda/launch.h"
#include "tensor/tensor.h"

namespace gangway::cuda {

using Bf16 = __nv_bfloat16;
using Half = __half;

// The type of computations on stored T.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline double widen(double x) { return x; }
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bf16 x) { return __bfloat162float(x); }
__device__ inline float widen(Half x) { return __half2float(x); }

// Rounds to nearest, ties to even. f64 is rounded to f32 before it is rounded to a 16-bit type.
template <typename T, typename S>
__device__ inline T narrow(S x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, Half>)
    return __float2half_rn(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

template <typename T, int n>
struct alignas(sizeof(T) * n) Pack {
  T at[n];
};
template <int n, typename T>
__device__ inline Pack<T, n> load(const T* from) {
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <int n, typename T>
__device__ inline void store(T* to, const Pack<T, n>& pack) {
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}

// The number of elements of T in 16 bytes.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// Returns whether accesses of 16 bytes are possible: whether all numbers (addresses, strides and lengths in
// bytes) are multiples of 16.
inline bool fits_packs(std::initializer_list<uint64_t> numbers) {
  uint64_t all = 0;
  for (const uint64_t number : numbers) all |= number;
  return all % 16 == 0;
}
inline uint64_t address(const Tensor& t) { return t ? reinterpret_cast<uint64_t>(t.raw()) : 0; }
inline uint64_t row_bytes(const Tensor& t) {
  return static_cast<uint64_t>(t.stride(0)) * item_bytes(t.dtype());
}

// Calls body(T{}) with the dtype's type.
template <typename Body>
void with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64: return body(double{});
    case DType::f32: return body(float{});
    case DType::bf16: return body(Bf16{});
    case DType::f16: return body(Half{});
    default: fail(Code::internal, "an operation on ", name(dtype), " has passed its check");
  }
}
// Calls body(std::integral_constant<int, n>()) with the length of a pack, or with 1 if packs do not fit.
template <typename T, typename Body>
void with_packs(bool fit, Body&& body) {
  if (fit) return body(std::integral_constant<int, kPack<T>>());
  body(std::integral_constant<int, 1>());
}

}  // namespace gangway::cuda
