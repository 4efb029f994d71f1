// The processor's cycle counter.
#pragma once

#include <chrono>
#include <cstdint>

namespace gangway::host {

inline uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace gangway::host
