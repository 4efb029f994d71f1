// Finds races within one launch of a kernel. It remembers, for each byte, which threads have touched it:
// - two threads of a block race if both touch a byte without a barrier between them, at least one of them
//   writes, and they are not both atomic. Threads of one warp are ordered by __syncwarp as well. Shuffles and
//   votes order no memory, as in CUDA.
// - two blocks race if both touch a byte of device memory, at least one of them writes, and they are not both
//   atomic. Nothing orders blocks.
// The order in which the software GPU runs threads and blocks does not matter for what is found.
//
// Only accesses that the code of a kernel tells are seen (note_access in kernel.h).
//
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu_emulation/kernel.h"

namespace gpu_emulation {

// The earlier access of a pair that races.
struct Rival {
  int lane;
  uint64_t block;
  bool wrote;
  size_t byte;  // of the later access, from its first one
};

class Races {
 public:
  void begin_launch();
  void begin_block(uint64_t number);
  void pass_barrier() { ++period_; }
  void pass_warp_barrier(size_t warp) { ++warp_epochs_[warp]; }

  // Notes that a thread of the running block touches bytes of shared memory, from `offset` on, or of device
  // memory. Returns the earlier access with which it races, if there is one.
  std::optional<Rival> touch_shared(int lane, size_t offset, size_t bytes, AccessKind kind);
  std::optional<Rival> touch_global(int lane, const void* at, size_t bytes, AccessKind kind);

 private:
  struct Touch {
    // Of the accesses since the last barrier, beside the last one. many: of other lanes of the warp, in its
    // epoch. warps: of other warps. plain: writes of the warp that were not atomic.
    uint32_t lane : 10, many : 1, warps : 1, plain : 1, atomic : 1, set : 1, warp_epoch : 17;
  };
  // What the threads of a block did to a byte since the last barrier. `reads` are of different warps.
  struct ByThreads {
    uint32_t period;
    Touch write, reads[2];
  };
  // What blocks did to a byte in this launch: the first access of each kind. The blocks run one after another,
  // so the first is of another block if any is.
  struct ByBlocks {
    uint32_t written, read;  // periods
    Touch write, reader;
    ByThreads threads;
  };
  static constexpr size_t kPage = 1024;
  using Page = std::array<ByBlocks, kPage>;

  Touch mine(int lane, AccessKind kind) const;
  static bool collide(const Touch& a, const Touch& b);
  static void remember_read(ByThreads& cell, const Touch& touch);
  std::optional<Rival> among_threads(ByThreads& cell, const Touch& touch, AccessKind kind) const;
  std::optional<Rival> among_blocks(ByBlocks& cell, const Touch& touch, AccessKind kind) const;
  Page& page(uintptr_t number);
  uint64_t block_at(uint32_t period) const;

  // A period is the time between two barriers of one block. Numbers go on from launch to launch, so that no
  // cell has to be cleared.
  uint32_t period_ = 0, first_of_launch_ = 0, first_of_block_ = 0;
  std::array<uint32_t, kThreadsPerBlock / kWarp> warp_epochs_{};
  std::vector<std::pair<uint32_t, uint64_t>> blocks_;  // the first period and the number of each block
  std::vector<ByThreads> shared_;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_number_ = 0;
  Page* last_ = nullptr;
};

}  // namespace gpu_emulation
