#include "gang/host/memory/limits.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "device/host_memory.h"
#include "gang/host/memory/shared.h"

namespace gangway::host {
uint64_t default_reserve() {
#if defined(__SANITIZE_THREAD__)
  return uint64_t{16} << 30;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return uint64_t{16} << 30;
#endif
#endif
  const auto ram =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(8 * ram, uint64_t{256} << 30);
}

uint64_t default_limit() {
  const uint64_t available = available_memory();
  return available == kUnknownBytes ? available : available / 5 * 4;
}

void touch(void* data, size_t bytes) {
  auto* const first = static_cast<unsigned char*>(data);
#ifdef MADV_POPULATE_WRITE
  if (bytes >= 4 * kPage && madvise(first, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (size_t i = 0; i < bytes; i += kPage)
    reinterpret_cast<std::atomic<unsigned char>*>(first + i)->fetch_or(0, std::memory_order_relaxed);
}

}  // namespace gangway::host
