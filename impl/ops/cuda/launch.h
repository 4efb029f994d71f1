// Starts kernels, and gives them their shared memory. Kernels use only the part of CUDA C++ that the software
// GPU of the tests also compiles: shared memory is dynamic, and whole warps take part in exchanges. Only this
// header depends on which compiler is in use.
//
// Thread rule: launch from any thread; block_memory inside a kernel.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "device/cuda/calls.h"

namespace gangway::cuda {

#ifdef __CUDACC__
inline void name_kernel(const char*) {}
template <typename T>
__device__ inline T* block_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}
#else
inline void name_kernel(const char* name) { ::gpu_emulation::name_next_kernel(name); }
template <typename T>
T* block_memory() {
  return static_cast<T*>(::gpu_emulation::shared_memory());
}
#endif

constexpr int kWarpSize = 32;
constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr size_t kSharedWithoutAsking = 48 * 1024;

struct Grid {
  dim3 blocks;
  int threads = 0;
  size_t shared_bytes = 0;
};

// Starts `kernel` with `arguments`, converted to its parameters. The stream's device must be current. `name`
// appears in errors. NOT_SUPPORTED if the device has less shared memory than `grid` asks for.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
            const Arguments&... arguments) {
  std::tuple<Parameters...> values(arguments...);
  if (grid.shared_bytes > kSharedWithoutAsking) {
    const size_t most = shared_memory_of_block();
    if (grid.shared_bytes > most)
      fail(Code::not_supported, name, ": a block needs ", grid.shared_bytes,
           " bytes of shared memory, and this GPU has ", most);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes)),
          name);
  }
  name_kernel(name);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        check(cudaLaunchKernel(kernel, grid.blocks, dim3(static_cast<unsigned>(grid.threads)), pointers,
                               grid.shared_bytes, stream),
              name);
      },
      values);
}

constexpr int64_t pieces(int64_t count, int64_t of) { return (count + of - 1) / of; }
// Returns a dimension of a grid. The kernel loops over elements beyond the grid.
inline unsigned blocks(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>(count, 1, int64_t{1} << 30));
}

}  // namespace gangway::cuda
