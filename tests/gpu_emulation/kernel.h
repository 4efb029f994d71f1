// The part of the software GPU that the code of a kernel uses: its place in the grid, barriers, exchanges
// within a warp. include/cuda_runtime.h includes this header.
//
// Thread rule: launch and name_next_kernel from any thread; everything else inside of kernels only.
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
constexpr int kMostSharedBytes = 227 * 1024;  // of a block on any architecture
// Returns what a block may have on the architecture of the settings.
int shared_bytes_of_block();

// One thread of a grid.
struct Lane {
  uint3 thread{}, block{};
  dim3 block_dim, grid_dim;
  unsigned in_warp = 0;
};
extern thread_local Lane* current_lane __attribute__((tls_model("initial-exec")));
inline const Lane& lane() { return *current_lane; }

// A line of a kernel at which threads wait for each other.
struct Site {
  const char* what;
  const char* file;
  int line;
  bool orders_memory = false;  // of the warp's threads
  bool whole_warp = false;     // all 32 threads must take part: a thread that has ended is a fault
};

// Returns when all threads of the block that have not ended have called it. A thread that waits at another
// line is a fault.
void block_barrier(const Site& site);
// Waits until all threads that `mask` names have called it, and returns their words by place in the warp. The
// mask must name all threads of the warp that have not ended. The words stay valid until the thread's next
// call.
const uint64_t* warp_exchange(unsigned mask, uint64_t word, const Site& site);
// Returns what a lane has handed to the exchange that returned `words`. A lane that took no part, because it
// had ended or the block has no such thread, is a fault: on a GPU its value is undefined.
uint64_t word_of(const uint64_t* words, unsigned lane, const Site& site);
// Stops the kernel with a fault if the address is not a multiple of `bytes`.
void require_aligned(const void* address, size_t bytes, const Site& site);
// Stops the kernel with a fault: "thread ... `why`, `site`".
[[noreturn]] void stop_kernel(const char* why, const Site& site);
// Tells of an access to memory, for the search for races and for counts of sectors. `code` names the
// instruction. Accesses outside of kernels, and to memory that is neither shared nor a device's, are ignored.
// A race stops the kernel with a fault.
enum class AccessKind : uint8_t { read, write, atomic };
void note_access(const void* at, size_t bytes, AccessKind kind, const void* code);
// A copy into shared memory that a thread has started.
struct Copy {
  void* to;
  const void* from;  // null: zeros
  int bytes;
};
// Returns the copies that the thread has started since it last waited for copies.
std::vector<Copy>& copies();
// Returns the block's dynamic shared memory. It is filled with NaN when the block begins.
void* shared_memory();

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes;
};
struct Argument {
  const void* data;
  size_t bytes;
};
// Sets the name of the thread's next kernel, for reports and the log.
void name_next_kernel(const char* name);
// Puts a kernel on a stream. `body` is called once for each thread of the grid, or the PTX of the function at
// `kernel` is run (ptx/kernels.h).
cudaError_t launch(const void* kernel, const LaunchShape& shape, std::span<const Argument> arguments,
                   std::function<void()> body, cudaStream_t stream);

}  // namespace gpu_emulation
