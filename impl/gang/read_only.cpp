#include "gang/read_only.h"

#include <algorithm>
#include <mutex>

namespace gangway {
namespace {

std::mutex mutex;
ReadOnlyRange* ranges = nullptr;

}  // namespace

std::atomic<uintptr_t> ReadOnlyRange::lowest_ = UINTPTR_MAX, ReadOnlyRange::highest_ = 0;

ReadOnlyRange::ReadOnlyRange(const void* begin, size_t bytes)
    : begin_(reinterpret_cast<uintptr_t>(begin)), end_(begin_ + bytes) {
  const std::lock_guard lock(mutex);
  next_ = ranges;
  ranges = this;
  find_span();
}

ReadOnlyRange::~ReadOnlyRange() {
  const std::lock_guard lock(mutex);
  ReadOnlyRange** place = &ranges;
  while (*place != this) place = &(*place)->next_;
  *place = next_;
  find_span();
}

void ReadOnlyRange::find_span() noexcept {
  uintptr_t lowest = UINTPTR_MAX, highest = 0;
  for (const ReadOnlyRange* r = ranges; r != nullptr; r = r->next_) {
    lowest = std::min(lowest, r->begin_);
    highest = std::max(highest, r->end_);
  }
  lowest_.store(lowest, std::memory_order_relaxed);
  highest_.store(highest, std::memory_order_relaxed);
}

bool ReadOnlyRange::any_meets(uintptr_t begin, uintptr_t end) noexcept {
  const std::lock_guard lock(mutex);
  for (const ReadOnlyRange* r = ranges; r != nullptr; r = r->next_)
    if (begin < r->end_ && r->begin_ < end) return true;
  return false;
}

}  // namespace gangway
