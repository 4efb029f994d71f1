// What a kernel's code reaches of the software GPU: its place in the grid, barriers, exchanges within a warp. Included by
// include/cuda_runtime.h.
//
// Thread rule: launch and name_next_kernel from any thread; all else inside a kernel only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

namespace gpu_emulation {

constexpr int kWarp = 32;
constexpr int kThreadsPerBlock = 1024;
constexpr int kSharedBytesPerBlock = 160 * 1024;  // of an sm_80; later ones have more

// One thread of a grid.
struct Lane {
  uint3 thread{}, block{};
  dim3 block_dim, grid_dim;
  unsigned in_warp = 0;
};
extern thread_local Lane* current_lane __attribute__((tls_model("initial-exec")));
inline const Lane& lane() { return *current_lane; }

// A line of a kernel where threads meet.
struct Site {
  const char* what;
  const char* file;
  int line;
};

// Returns when all threads of the block that have not ended are at it. Those at another line are a fault.
void block_barrier(const Site& site);
// Returns the words of the warp's threads, by place in the warp, when all that `mask` names are at it. The mask has to
// name all threads of the warp that have not ended. The words stay until the thread's next call.
const uint64_t* warp_exchange(unsigned mask, uint64_t word, const Site& site);
// An address that is no multiple of `bytes` is a fault.
void require_aligned(const void* address, size_t bytes, const Site& site);
// A copy into shared memory that the thread has begun.
struct Copy {
  void* to;
  const void* from;  // null: zeros
  int bytes;
};
// The thread's, since it last waited for them.
std::vector<Copy>& copies();
// The block's dynamic shared memory; full of NaN when the block begins.
void* shared_memory();

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes;
};
struct Argument {
  const void* data;
  size_t bytes;
};
// Names the next kernel that this thread launches, in reports and in the log.
void name_next_kernel(const char* name);
// Puts a kernel on a stream. `body` runs once for each thread of the grid.
cudaError_t launch(const LaunchShape& shape, std::span<const Argument> arguments, std::function<void()> body,
                   cudaStream_t stream);

}  // namespace gpu_emulation
