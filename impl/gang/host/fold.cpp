#include "gang/host/fold.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/config.h"
#include "gang/host/fold_table.h"

namespace gangway::host {
namespace {

bool has_avx2() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1u << 29;  // no name in clang 14's __builtin_cpu_supports
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
#else
  return false;
#endif
}

const FoldKernels& choose() {
#if defined(__x86_64__)
  if (config().cpu_isa != "portable" && has_avx2()) return avx2::kKernels;
#endif
  return portable::kKernels;
}

}  // namespace

const FoldKernels& fold_kernels() {
  static const FoldKernels& chosen = choose();
  return chosen;
}

const FoldKernels* fold_kernels(const char* isa) {
  if (std::strcmp(isa, "portable") == 0) return &portable::kKernels;
#if defined(__x86_64__)
  if (std::strcmp(isa, "avx2") == 0 && has_avx2()) return &avx2::kKernels;
#endif
  return nullptr;
}

void copy_bytes(void* to, const void* from, size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace gangway::host
