// The arena of one host: one mapping that all its ranks reach, cut into a slice per rank.
//
// Processes share a sparse sealed memfd; threads share plain memory of one mapping. Pages are taken when a
// block is allocated, against a limit that all ranks count together, and given back when a large block is
// freed.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "gang/host/memory/shared.h"
#include "gang/read_only.h"
#include "tensor/tensor.h"

namespace gangway::host {

struct ArenaOptions {
  uint64_t reserve = 0;  // bytes of address space; 0: default
  uint64_t limit = 0;    // bytes that may be taken; 0: default
  int64_t liveness_ms = 0;
};

// Counts calls of fork in this process; memory of the arena is absent in a child.
uint32_t fork_generation() noexcept;

class Arena {
 public:
  // Fresh memory with a header for `size` ranks. `threads`: plain memory, else a memfd (see fd()).
  static std::shared_ptr<Arena> create(int size, bool threads, const ArenaOptions& options);
  // Maps what another rank created. Error when it is not an arena.
  static std::shared_ptr<Arena> map(int fd);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  DomainHeader& header() const { return *reinterpret_cast<DomainHeader*>(base_); }
  RankSlot& rank(int r) const { return header().ranks[r]; }
  bool threads() const { return threads_; }
  int fd() const { return fd_; }
  void close_fd();

  unsigned char* at(uint64_t offset) const { return base_ + offset; }
  template <typename T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  bool holds(const void* p, size_t bytes) const {
    const auto* const c = static_cast<const unsigned char*>(p);
    return c >= base_ && c < base_ + bytes_ && bytes <= static_cast<size_t>(base_ + bytes_ - c);
  }
  // Offset of a pointer into either mapping; 0 when it is outside.
  uint64_t offset_of(const void* p, size_t bytes) const;
  const unsigned char* read_only(uint64_t offset) const { return read_only_ + offset; }
  bool forked() const { return fork_generation() != born_; }
  // Will rank `r` never touch the arena again? A silent rank may yet wake, and the memory of a thread's rank
  // may have gone to another thread: such ranks release what they hold themselves.
  bool died(int r) const noexcept;

  // Pages of a block: counted, then touched unless `lazy`. Error{out_of_memory} with both numbers.
  void take(uint64_t offset, size_t bytes, bool lazy);
  void give_back(uint64_t offset, size_t bytes) noexcept;

 private:
  Arena() = default;
  void map_read_only();  // leaves read_only_ null where there is no address space
  unsigned char* base_ = nullptr;
  unsigned char* read_only_ = nullptr;
  std::unique_ptr<ReadOnlyRange> known_;  // of processes: threads have one mapping, which they write
  size_t bytes_ = 0;
  int fd_ = -1;
  bool threads_ = false;
  uint32_t born_ = fork_generation();
};

// Free ranges of an address range, joined with their neighbours. Best fit.
class FreeRanges {
 public:
  void add(uint64_t first, uint64_t bytes);
  // Offset of a range of exactly `bytes` at a multiple of `alignment`; 0 when none fits.
  uint64_t take(uint64_t bytes, uint64_t alignment);

 private:
  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
};

// Blocks of one rank's slice. Large ones are whole pages that go back to the system when freed; small ones
// are cut from pages that stay.
class Slice {
 public:
  Slice(std::shared_ptr<Arena> arena, int rank);

  // 64-byte aligned; large blocks start a page. `zeroed` blocks are always large; `lazy`: pages come with
  // first use.
  uint64_t allocate(size_t bytes, bool zeroed = false, bool lazy = false);
  void free(uint64_t offset) noexcept;
  // A block of any rank's slice, by any rank: its owner gets it back at its next allocation. Large blocks
  // only.
  static void free_remote(Arena& arena, int owner, uint64_t offset, size_t bytes) noexcept;
  Arena& arena() const { return *arena_; }

 private:
  void drain_freed();

  std::shared_ptr<Arena> arena_;
  int rank_;
  std::mutex mutex_;
  FreeRanges pages_, small_;
  std::map<uint64_t, uint64_t> blocks_;  // offset -> bytes, of live blocks
};

// The slice as an Allocator of gang_shared blocks.
std::shared_ptr<Allocator> make_slice_allocator(std::shared_ptr<Slice> slice, std::shared_ptr<Device> device);

}  // namespace gangway::host
