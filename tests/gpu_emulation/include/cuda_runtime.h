// The part of CUDA C++ that Gangway's kernels use, for host compilers. A kernel is a plain function, which a
// fiber runs for each thread (../block.h). Shared memory is dynamic only, because a static variable could
// neither be filled with NaN when a block begins nor be followed by a protected page.
#pragma once

#include <math.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>
#include "gpu_emulation/kernel.h"

#define __global__
#define __device__
#define __launch_bounds__(...)

#define threadIdx (::gpu_emulation::lane().thread)
#define blockIdx (::gpu_emulation::lane().block)
#define blockDim (::gpu_emulation::lane().block_dim)
#define gridDim (::gpu_emulation::lane().grid_dim)

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  ::gpu_emulation::block_barrier({"__syncthreads", file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  ::gpu_emulation::warp_exchange(mask, 0, {"__syncwarp", file, line, true});
}

namespace gpu_emulation {

template <typename T>
uint64_t to_word(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}
template <typename T>
T from_word(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace gpu_emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  const ::gpu_emulation::Site site{"__shfl_sync", file, line};
  const uint64_t* const all = ::gpu_emulation::warp_exchange(mask, ::gpu_emulation::to_word(value), site);
  return ::gpu_emulation::from_word<T>(
      ::gpu_emulation::word_of(all, static_cast<unsigned>(from) & 31u, site));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const ::gpu_emulation::Site site{"__shfl_xor_sync", file, line};
  const uint64_t* const all = ::gpu_emulation::warp_exchange(mask, ::gpu_emulation::to_word(value), site);
  const unsigned from = (::gpu_emulation::lane().in_warp ^ static_cast<unsigned>(distance)) & 31u;
  return ::gpu_emulation::from_word<T>(::gpu_emulation::word_of(all, from, site));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  const uint64_t* const all =
      ::gpu_emulation::warp_exchange(mask, predicate != 0, {"__ballot_sync", file, line});
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; ++i)
    if ((mask >> i & 1u) != 0 && all[i] != 0) votes |= 1u << i;
  return votes;
}

// Atomic, because blocks of other streams run on other threads of the host.
template <typename T>
requires std::is_integral_v<T> T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

inline float __fmul_rn(float x, float y) { return x * y; }
inline int __ffs(int x) { return __builtin_ffs(x); }

// Like the toolkit's overload, it takes the types of the parameters from the kernel.
template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return [&]<size_t... i>(std::index_sequence<i...>) {
    std::tuple<std::remove_cv_t<Parameters>...> copy(
        *static_cast<const std::remove_cv_t<Parameters>*>(arguments[i])...);
    // Padding may hold any bytes, which must not be taken for addresses.
#if __has_builtin(__builtin_clear_padding)
    (__builtin_clear_padding(&std::get<i>(copy)), ...);
    const std::array<::gpu_emulation::Argument, sizeof...(i)> words = {
        ::gpu_emulation::Argument{&std::get<i>(copy), sizeof(std::get<i>(copy))}...};
#else
    const std::array<::gpu_emulation::Argument, 0> words = {};
#endif
    return ::gpu_emulation::launch(
        reinterpret_cast<const void*>(kernel), {grid, block, shared_bytes}, words,
        [kernel, copy] { std::apply(kernel, copy); }, stream);
  }
  (std::index_sequence_for<Parameters...>());
}
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int bytes) {
  return bytes <= ::gpu_emulation::shared_bytes_of_block() ? cudaSuccess : cudaErrorInvalidValue;
}
