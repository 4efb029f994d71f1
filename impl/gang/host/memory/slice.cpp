#include <sys/mman.h>

#include <algorithm>

#include "gang/host/memory/arena.h"

namespace gangway::host {
namespace {

constexpr size_t kLarge = 64 << 10;        // blocks of at least this size consist of whole pages
constexpr size_t kSmallPiece = 256 << 10;  // small blocks are cut from pieces of this size
constexpr size_t kHuge = 2 << 20;
constexpr uint64_t kSmallMark = 1;  // set in the size of a live block that was cut from a piece

// A block that another rank has freed. The link of the list lies in the block itself.
struct Returned {
  uint64_t next;
};

class SliceAllocator final : public Allocator {
 public:
  SliceAllocator(std::shared_ptr<Slice> slice, std::shared_ptr<Device> device)
      : slice_(std::move(slice)), device_(std::move(device)) {}

  Device& device() override { return *device_; }
  MemoryKind kind() const override { return MemoryKind::gang_shared; }

  Block allocate(size_t bytes) override {
    if (slice_->arena().forked()) fail(Code::forked, "host engine: its memory cannot be used after fork");
    if (bytes == 0) return {};
    const uint64_t offset = slice_->allocate(bytes);
    return {slice_->arena().at(offset), bytes, offset};
  }

  void free(const Block& block) noexcept override {
    if (block.token != 0 && !slice_->arena().forked()) slice_->free(block.token);
  }

 private:
  std::shared_ptr<Slice> slice_;
  std::shared_ptr<Device> device_;
};

}  // namespace

void FreeRanges::add(uint64_t first, uint64_t bytes) {
  auto next = by_offset_.lower_bound(first);
  if (next != by_offset_.end() && first + bytes == next->first) {
    bytes += next->second;
    by_size_.erase({next->second, next->first});
    next = by_offset_.erase(next);
  }
  if (next != by_offset_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      by_size_.erase({before->second, before->first});
      first = before->first;
      bytes += before->second;
      by_offset_.erase(before);
    }
  }
  by_offset_[first] = bytes;
  by_size_.insert({bytes, first});
}

uint64_t FreeRanges::take(uint64_t bytes, uint64_t alignment) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const auto [have, first] = *it;
    const uint64_t at = round_up(first, alignment);
    if (at + bytes > first + have) continue;
    by_size_.erase(it);
    by_offset_.erase(first);
    if (at > first) add(first, at - first);
    if (at + bytes < first + have) add(at + bytes, first + have - at - bytes);
    return at;
  }
  return 0;
}

Slice::Slice(std::shared_ptr<Arena> arena, int rank) : arena_(std::move(arena)), rank_(rank) {
  const DomainHeader& h = arena_->header();
  pages_.add(h.slices + static_cast<uint64_t>(rank) * h.slice_bytes, h.slice_bytes);
}

uint64_t Slice::allocate(size_t bytes, bool zeroed, bool lazy) {
  const std::lock_guard lock(mutex_);
  drain_freed();
  const bool large = zeroed || lazy || bytes >= kLarge;
  if (!large) {
    const uint64_t size = round_up(std::max<size_t>(bytes, 1), kLine);
    uint64_t at = small_.take(size, kLine);
    if (at == 0) {
      const uint64_t piece = pages_.take(kSmallPiece, kPage);
      if (piece != 0) {
        try {
          arena_->take(piece, kSmallPiece, false);
        } catch (...) {
          pages_.add(piece, kSmallPiece);
          throw;
        }
        small_.add(piece, kSmallPiece);
        at = small_.take(size, kLine);
      }
    }
    if (at != 0) {
      blocks_[at] = size | kSmallMark;
      return at;
    }
  }
  // A size beyond the whole slice is not rounded up, because the sum could wrap around to 0.
  const bool too_large = bytes > arena_->header().slice_bytes;
  const uint64_t size = too_large ? 0 : round_up(std::max<size_t>(bytes, 1), kPage);
  const uint64_t at = too_large ? 0 : pages_.take(size, size >= kHuge ? kHuge : kPage);
  if (at == 0)
    fail(Code::out_of_memory, "host engine: ", bytes, " bytes do not fit the slice of ",
         arena_->header().slice_bytes, " bytes that each of ", arena_->header().size,
         " ranks has of the arena");
  try {
    arena_->take(at, size, lazy);
  } catch (...) {
    pages_.add(at, size);
    throw;
  }
  blocks_[at] = size;
  return at;
}

void Slice::free(uint64_t offset) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(offset);
  if (found == blocks_.end()) return;
  const uint64_t bytes = found->second;
  blocks_.erase(found);
  if ((bytes & kSmallMark) != 0) {
    small_.add(offset, bytes & ~kSmallMark);
    return;
  }
  arena_->give_back(offset, bytes);
  pages_.add(offset, bytes);
}

void Slice::free_remote(Arena& arena, int owner, uint64_t offset, size_t bytes) noexcept {
  // All pages but the first are released now. The first page holds the list link until the owner takes it.
  if (bytes > kPage)
    madvise(arena.at(offset) + kPage, bytes - kPage, arena.threads() ? MADV_DONTNEED : MADV_REMOVE);
  auto* const returned = arena.at<Returned>(offset);
  std::atomic<uint64_t>& head = arena.rank(owner).freed;
  uint64_t next = head.load(std::memory_order_relaxed);
  do {
    returned->next = next;
  } while (!head.compare_exchange_weak(next, offset, std::memory_order_release, std::memory_order_relaxed));
}

void Slice::drain_freed() {
  std::atomic<uint64_t>& head = arena_->rank(rank_).freed;
  if (head.load(std::memory_order_relaxed) == 0) return;
  uint64_t at = head.exchange(0, std::memory_order_acquire);
  while (at != 0) {
    const uint64_t next = arena_->at<Returned>(at)->next;
    const auto found = blocks_.find(at);
    if (found != blocks_.end()) {
      const uint64_t bytes = found->second;  // whole pages, whatever size the caller passed
      blocks_.erase(found);
      arena_->give_back(at, bytes);
      pages_.add(at, bytes);
    }
    at = next;
  }
}

std::shared_ptr<Allocator> make_slice_allocator(std::shared_ptr<Slice> slice,
                                                std::shared_ptr<Device> device) {
  return std::make_shared<SliceAllocator>(std::move(slice), std::move(device));
}

}  // namespace gangway::host
