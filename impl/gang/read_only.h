// Address ranges of this process that must not be written: the read-only mappings of other ranks' memory. A
// call that would write there is refused, because the write would kill the process.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gangway {

// The range is registered as long as this object lives. It must end before the memory is unmapped.
class ReadOnlyRange {
 public:
  ReadOnlyRange(const void* begin, size_t bytes);
  ~ReadOnlyRange();
  ReadOnlyRange(const ReadOnlyRange&) = delete;
  ReadOnlyRange& operator=(const ReadOnlyRange&) = delete;

 private:
  friend bool is_read_only(const void* begin, size_t bytes) noexcept;
  static bool any_meets(uintptr_t begin, uintptr_t end) noexcept;
  static void find_span() noexcept;

  // All ranges lie between these two. Most memory lies outside, and then no lock is taken.
  static std::atomic<uintptr_t> lowest_, highest_;
  uintptr_t begin_, end_;
  ReadOnlyRange* next_ = nullptr;
};

// Returns whether any of these bytes lies in such a range.
inline bool is_read_only(const void* begin, size_t bytes) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(begin), last = first + bytes;
  return last > ReadOnlyRange::lowest_.load(std::memory_order_relaxed) &&
         first < ReadOnlyRange::highest_.load(std::memory_order_relaxed) &&
         ReadOnlyRange::any_meets(first, last);
}

}  // namespace gangway
