// The arena of one host: one mapping that all its ranks access, divided into one slice for each rank.
//
// Processes share a sparse sealed memfd. Threads share plain memory of one mapping. The arena takes pages
// when a block is allocated, against one limit for all ranks, and gives them back when a large block is
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

// How often this process has forked. A child of fork has no memory of the arena.
uint32_t fork_generation() noexcept;

class Arena {
 public:
  // Creates new memory with a header for `size` ranks: plain memory if ranks are `threads`, else a memfd
  // (fd()).
  static std::shared_ptr<Arena> create(int size, bool threads, const ArenaOptions& options);
  // Maps for `rank` what rank 0 created. Throws when `fd` is not an arena. INVALID_STATE: rank 0 runs another
  // build of the library.
  static std::shared_ptr<Arena> map(int fd, int rank);
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
  // Returns the offset of a pointer into either mapping, or 0 if it points elsewhere.
  uint64_t offset_of(const void* p, size_t bytes) const;
  const unsigned char* read_only(uint64_t offset) const { return read_only_ + offset; }
  bool forked() const { return fork_generation() != born_; }
  // Returns whether rank `r` can never access the arena again. It is false for a rank that was silent for too
  // long, because it may continue later, and for a rank that is a thread, because another thread may use its
  // memory. Such ranks release their memory themselves.
  bool died(int r) const noexcept;

  // Counts the pages of a block against the limit, then touches them unless `lazy`. Error{out_of_memory}
  // names the wanted and the available bytes.
  void take(uint64_t offset, size_t bytes, bool lazy);
  void give_back(uint64_t offset, size_t bytes) noexcept;

 private:
  Arena() = default;
  // Leaves read_only_ null when there is no address space for it.
  void map_read_only();
  unsigned char* base_ = nullptr;
  unsigned char* read_only_ = nullptr;
  // The ranges that are mapped read-only. Null if ranks are threads, which have only one mapping.
  std::unique_ptr<ReadOnlyRange> known_;
  size_t bytes_ = 0;
  int fd_ = -1;
  bool threads_ = false;
  uint32_t born_ = fork_generation();
};

// The free ranges of an address range. Neighbours are merged; the best fit is taken.
class FreeRanges {
 public:
  void add(uint64_t first, uint64_t bytes);
  // Returns the offset of `bytes` bytes at a multiple of `alignment`, or 0 when none fits.
  uint64_t take(uint64_t bytes, uint64_t alignment);

 private:
  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
};

// The blocks of one rank's slice. A large block has whole pages, which go back to the system when it is
// freed. Small blocks are cut from pages that stay.
class Slice {
 public:
  Slice(std::shared_ptr<Arena> arena, int rank);

  // The result is 64-byte aligned; a large block starts at a page. `zeroed` blocks are always large. Pages of
  // a `lazy` block are taken at their first use.
  uint64_t allocate(size_t bytes, bool zeroed = false, bool lazy = false);
  void free(uint64_t offset) noexcept;
  // Frees a large block of any rank's slice, from any rank. The owner of the slice can reuse it from its next
  // allocation on.
  static void free_remote(Arena& arena, int owner, uint64_t offset, size_t bytes) noexcept;
  Arena& arena() const { return *arena_; }

 private:
  void drain_freed();

  std::shared_ptr<Arena> arena_;
  int rank_;
  std::mutex mutex_;
  FreeRanges pages_, small_;
  std::map<uint64_t, uint64_t> blocks_;  // offset -> bytes of each live block
};

// An Allocator over the slice, whose blocks are of kind gang_shared.
std::shared_ptr<Allocator> make_slice_allocator(std::shared_ptr<Slice> slice, std::shared_ptr<Device> device);

}  // namespace gangway::host
