// Address ranges of this process that must not be written: mappings through which ranks show each other memory.
// A call that is told to write there is refused, as the write would be the end of the process. Thread rule:
// any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gangway {

// While it lives, the range is known. It ends before the memory is unmapped.
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

  // From the first range to the last: most memory lies outside, and then nothing is locked.
  static std::atomic<uintptr_t> lowest_, highest_;
  uintptr_t begin_, end_;
  ReadOnlyRange* next_ = nullptr;
};

// Is any of these bytes in such a range?
inline bool is_read_only(const void* begin, size_t bytes) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(begin), last = first + bytes;
  return last > ReadOnlyRange::lowest_.load(std::memory_order_relaxed) &&
         first < ReadOnlyRange::highest_.load(std::memory_order_relaxed) &&
         ReadOnlyRange::any_meets(first, last);
}

}  // namespace gangway
