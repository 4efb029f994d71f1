// Want of memory at every single allocation of a call. Replaces operator new: for one .cpp of a program of
// its own.
#pragma once

#include <cstdlib>
#include <new>

namespace gangway::test {

inline thread_local long allocations_left = -1;  // of this thread, before one fails; negative: all succeed
inline thread_local bool one_fails = false;      // else all later ones do, too

inline void* allocate(std::size_t bytes) {
  if (allocations_left == 0) {
    if (one_fails) allocations_left = -1;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace gangway::test

__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (void* const p = gangway::test::allocate(bytes)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return gangway::test::allocate(bytes);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }
