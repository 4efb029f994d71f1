// Lack of memory at every single allocation of a call. Replaces operator new: for one .cpp of a program of
// its own.
#pragma once

#include <execinfo.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace gangway::test {

inline thread_local long allocations_left = -1;  // of this thread, before one fails; negative: all succeed
inline thread_local bool one_fails = false;      // else all later ones do, too

// Where allocations of this thread come from, while `stacks` has room: a hash of the callers of each.
inline thread_local uint64_t* stacks = nullptr;
inline thread_local long stack_count = 0, stack_room = 0;

inline void note_stack() {
  void* callers[64];
  uint64_t hash = 14695981039346656037u;  // FNV
  const int count = backtrace(callers, 64);
  for (int i = 0; i < count; ++i) hash = (hash ^ reinterpret_cast<uintptr_t>(callers[i])) * 1099511628211u;
  stacks[stack_count++] = hash;
}

inline void* allocate(std::size_t bytes, std::size_t alignment = 0) {
  if (stack_count < stack_room) note_stack();
  if (allocations_left == 0) {
    if (one_fails) allocations_left = -1;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  if (alignment == 0) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
inline void* allocate_or_throw(std::size_t bytes, std::size_t alignment = 0) {
  if (void* const p = allocate(bytes, alignment)) return p;
  throw std::bad_alloc();
}

}  // namespace gangway::test

// Each form by itself: a sanitizer brings its own of those that are not here.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  return gangway::test::allocate_or_throw(bytes);
}
__attribute__((noinline)) void* operator new[](std::size_t bytes) {
  return gangway::test::allocate_or_throw(bytes);
}
__attribute__((noinline)) void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return gangway::test::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
__attribute__((noinline)) void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return gangway::test::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return gangway::test::allocate(bytes);
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::size_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
