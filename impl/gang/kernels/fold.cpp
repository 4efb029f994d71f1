#include "gang/kernels/fold.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

#include "base/config.h"
#include "gang/kernels/fold_table.h"

namespace gangway::host {
namespace {

constexpr size_t kRepeated = 1024;  // shorter copies are done by memcpy through registers

bool has_avx2() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1u << 29;  // __builtin_cpu_supports of clang 14 has no name for it
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

void copy_bytes(void* to_bytes, const void* from_bytes, size_t bytes) noexcept {
  if (bytes == 0) return;
  auto* to = static_cast<unsigned char*>(to_bytes);
  const auto* from = static_cast<const unsigned char*>(from_bytes);
  // memcpy uses `rep movsb` for such sizes. On Zen 3 and 4 that takes 15 times as long if, modulo the page
  // size, the target is 1 to 31 bytes behind the source. This is common for a page-aligned block and a block
  // of malloc.
  constexpr size_t kPiece = 64;
  const size_t apart = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % 4096;
  if (bytes >= kRepeated && apart - 1 < 31) {
    for (; bytes >= kPiece; bytes -= kPiece, to += kPiece, from += kPiece) __builtin_memcpy(to, from, kPiece);
  }
  std::memcpy(to, from, bytes);
}

void stream_bytes(void* to_bytes, const void* from_bytes, size_t bytes) noexcept {
  auto* to = static_cast<unsigned char*>(to_bytes);
  const auto* from = static_cast<const unsigned char*>(from_bytes);
  constexpr size_t kLine = 64;
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  copy_bytes(to, from, head);
  to += head, from += head, bytes -= head;
  const size_t lines = bytes / kLine * kLine;
  fold_kernels().stream(to, from, lines);
  copy_bytes(to + lines, from + lines, bytes - lines);
}

void end_stream() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace gangway::host
