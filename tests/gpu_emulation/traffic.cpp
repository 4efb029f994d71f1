#include "gpu_emulation/traffic.h"

#include <atomic>
#include <deque>

#include "gpu_emulation/kernel.h"
#include "gpu_emulation/memory.h"

namespace gpu_emulation {
namespace {

struct Watched {
  const char* data = nullptr;
  size_t bytes = 0;
  std::atomic<uint64_t> read = 0, written = 0;
};
std::deque<Watched>& watched() {
  static auto* const all = new std::deque<Watched>(1);  // the first element counts all other memory
  return *all;
}

void count(const void* address, size_t bytes, bool writes, const void* code) {
  note_access(address, bytes, writes ? AccessKind::write : AccessKind::read, code);
  Watched* found = nullptr;
  for (Watched& one : watched())
    if (address >= one.data && address < one.data + one.bytes) found = &one;
  if (found == nullptr) {
    if (!is_device_address(address)) return;  // shared memory, or a thread's own
    found = &watched().front();
  }
  (writes ? found->written : found->read).fetch_add(bytes, std::memory_order_relaxed);
}

void count_both(const void* address, size_t bytes, const void* code) {
  count(address, bytes, false, code);
  count(address, bytes, true, code);
}
void note_atomic(const volatile void* address, size_t bytes, const void* code) {
  note_access(const_cast<const void*>(address), bytes, AccessKind::atomic, code);
}

}  // namespace

void watch(const void* data, size_t bytes) {
  Watched& one = watched().emplace_back();
  one.data = static_cast<const char*>(data);
  one.bytes = bytes;
}

std::vector<Moved> take_moved() {
  std::vector<Moved> all;
  for (size_t i = 1; i < watched().size(); ++i) all.push_back({watched()[i].read, watched()[i].written});
  all.push_back({watched().front().read, watched().front().written});
  watched().clear();
  watched().emplace_back();
  return all;
}

}  // namespace gpu_emulation

// The functions that code compiled with -fsanitize=thread calls. Each access size has its own function.
// Kernels have no "vptr" accesses.
#define GPU_EMULATION_ACCESS(n)                                                                          \
  void __tsan_read##n(void* at) { gpu_emulation::count(at, n, false, __builtin_return_address(0)); }     \
  void __tsan_write##n(void* at) { gpu_emulation::count(at, n, true, __builtin_return_address(0)); }     \
  void __tsan_unaligned_read##n(void* at) {                                                              \
    gpu_emulation::count(at, n, false, __builtin_return_address(0));                                     \
  }                                                                                                      \
  void __tsan_unaligned_write##n(void* at) {                                                             \
    gpu_emulation::count(at, n, true, __builtin_return_address(0));                                      \
  }                                                                                                      \
  void __tsan_read_write##n(void* at) { gpu_emulation::count_both(at, n, __builtin_return_address(0)); } \
  void __tsan_unaligned_read_write##n(void* at) {                                                        \
    gpu_emulation::count_both(at, n, __builtin_return_address(0));                                       \
  }
#define GPU_EMULATION_NOTE(at) gpu_emulation::note_atomic(at, sizeof(*at), __builtin_return_address(0))
#define GPU_EMULATION_ATOMIC(bits, T)                                                          \
  T __tsan_atomic##bits##_load(const volatile T* at, int) {                                    \
    GPU_EMULATION_NOTE(at);                                                                    \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
  }                                                                                            \
  void __tsan_atomic##bits##_store(volatile T* at, T x, int) {                                 \
    GPU_EMULATION_NOTE(at);                                                                    \
    __atomic_store_n(at, x, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                            \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T x, int) {                                \
    GPU_EMULATION_NOTE(at);                                                                    \
    return __atomic_fetch_add(at, x, __ATOMIC_SEQ_CST);                                        \
  }                                                                                            \
  T __tsan_atomic##bits##_exchange(volatile T* at, T x, int) {                                 \
    GPU_EMULATION_NOTE(at);                                                                    \
    return __atomic_exchange_n(at, x, __ATOMIC_SEQ_CST);                                       \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* old, T x, int, int) {   \
    GPU_EMULATION_NOTE(at);                                                                    \
    return __atomic_compare_exchange_n(at, old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* old, T x, int, int) {     \
    GPU_EMULATION_NOTE(at);                                                                    \
    return __atomic_compare_exchange_n(at, old, x, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }
extern "C" {
GPU_EMULATION_ACCESS(1)
GPU_EMULATION_ACCESS(2)
GPU_EMULATION_ACCESS(4)
GPU_EMULATION_ACCESS(8)
GPU_EMULATION_ACCESS(16)
GPU_EMULATION_ATOMIC(8, uint8_t)
GPU_EMULATION_ATOMIC(32, uint32_t)
GPU_EMULATION_ATOMIC(64, uint64_t)
void __tsan_read_range(void* at, size_t bytes) {
  gpu_emulation::count(at, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  gpu_emulation::count(at, bytes, true, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
