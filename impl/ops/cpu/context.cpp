#include "ops/cpu/context.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/config.h"

namespace gangway::cpu {
namespace {

#if defined(__x86_64__)
bool has_f16c() {
  constexpr unsigned kF16c = 1u << 29;  // clang 14's __builtin_cpu_supports has no name for it
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}
#endif

}  // namespace

const char* name(Isa isa) {
  switch (isa) {
    case Isa::portable: return "portable";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
  }
  return "";
}

Isa processor_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return Isa::portable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return Isa::avx512;
  return Isa::avx2;
#else
  return Isa::portable;
#endif
}

Isa configured_isa() {
  const std::string& cap = config().cpu_isa;
  const Isa most = cap == "portable" ? Isa::portable : cap == "avx2" ? Isa::avx2 : Isa::avx512;
  return std::min(most, processor_isa());
}

void* Scratch::bytes_of(int thread, size_t bytes) {
  Buffer& b = buffers_[static_cast<size_t>(thread)];
  if (b.bytes < bytes) {
    const size_t rounded = (bytes + bytes / 4 + 4095) / 4096 * 4096;
    b.data.reset();
    b.bytes = 0;
    void* data = std::aligned_alloc(64, rounded);
    if (data == nullptr) fail(Code::out_of_memory, "the host has no ", rounded, " bytes left for scratch");
    b.data.reset(data);
    b.bytes = rounded;
  }
  return b.data.get();
}

}  // namespace gangway::cpu
