// Counts what the warps' accesses to memory cost: sectors of device memory, and passes over the banks of
// shared memory. Threads of a warp run one after another here, so an access of the warp is put together from
// the accesses of its threads: the nth execution of one instruction since the warp last synchronized.
//
// Only accesses that the code of a kernel tells are seen (note_access in kernel.h).
//
// Thread rule: watch_warps and take_warps from one thread while no kernel runs; the class: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu_emulation/kernel.h"

namespace gpu_emulation {

// A sector has 32 bytes. A pass reads or writes at most one word of 4 bytes in each of the 32 banks; the
// passes beyond the least are bank conflicts. The least numbers are those of the same bytes, side by side.
struct WarpTraffic {
  uint64_t global_accesses = 0, sectors = 0, least_sectors = 0;
  uint64_t shared_accesses = 0, passes = 0, least_passes = 0;
};
// From now on, counts the accesses of all warps. This makes kernels several times slower.
void watch_warps();
// Returns the counts, and stops counting.
WarpTraffic take_warps();

class WarpAccesses {
 public:
  static bool watched();
  // Notes an access of one thread. `code` names the instruction.
  void note(int lane, bool shared, uintptr_t at, size_t bytes, AccessKind kind, const void* code);
  // The threads of the warp have synchronized.
  void flush(size_t warp);
  void flush_all();

 private:
  struct Part {
    int lane;
    uintptr_t at;
    size_t bytes;
  };
  struct Access {
    bool shared;
    std::vector<Part> parts;  // of the warp's threads
  };
  struct Warp {
    // By the instruction and its kind: how often each thread has executed it, and the executions.
    std::map<std::pair<const void*, AccessKind>, std::pair<std::array<uint32_t, kWarp>, std::vector<Access>>>
        instructions;
  };
  static void count(Access& access, WarpTraffic& sum);

  std::unordered_map<size_t, Warp> warps_;
};

}  // namespace gpu_emulation
