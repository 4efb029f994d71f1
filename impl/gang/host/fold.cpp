#include "gang/host/fold.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

#include "base/config.h"
#include "gang/host/fold_table.h"

// The thread sanitizer does not see streaming stores.
#if defined(__SANITIZE_THREAD__)
#define GANGWAY_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GANGWAY_THREAD_SANITIZER
#endif
#endif

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

#if defined(__x86_64__) && !defined(GANGWAY_THREAD_SANITIZER)
void copy_past_caches(void* to_bytes, const void* from_bytes, size_t bytes) noexcept {
  constexpr size_t kLeast = 32 << 10;  // below, a near core's cache is faster
  if (bytes < kLeast) return copy_bytes(to_bytes, from_bytes, bytes);
  auto* to = static_cast<unsigned char*>(to_bytes);
  const auto* from = static_cast<const unsigned char*>(from_bytes);
  const size_t head = -reinterpret_cast<uintptr_t>(to) & 63;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();  // before the flag that says the bytes are there
}
#else
void copy_past_caches(void* to, const void* from, size_t bytes) noexcept { copy_bytes(to, from, bytes); }
#endif

}  // namespace gangway::host
