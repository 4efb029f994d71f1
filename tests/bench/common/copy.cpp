#include "common/copy.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gangway::bench {

const char* name(Copy copy) {
  switch (copy) {
    case Copy::memcpy: return "memcpy";
    case Copy::non_temporal: return "non-temporal";
    case Copy::rep_movsb: return "rep movsb";
  }
  return "";
}

#if defined(__x86_64__)
void copy_bytes(Copy copy, void* to, const void* from, size_t bytes) {
  switch (copy) {
    case Copy::memcpy: std::memcpy(to, from, bytes); return;
    case Copy::non_temporal: {
      auto* out = static_cast<__m128i*>(to);
      const auto* in = static_cast<const __m128i*>(from);
      for (size_t i = 0; i < bytes / 16; i += 4) {
        const __m128i a = _mm_load_si128(in + i), b = _mm_load_si128(in + i + 1);
        const __m128i c = _mm_load_si128(in + i + 2), d = _mm_load_si128(in + i + 3);
        _mm_stream_si128(out + i, a);
        _mm_stream_si128(out + i + 1, b);
        _mm_stream_si128(out + i + 2, c);
        _mm_stream_si128(out + i + 3, d);
      }
      _mm_sfence();
      return;
    }
    case Copy::rep_movsb:
      __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
      return;
  }
}
#else
void copy_bytes(Copy, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace gangway::bench
