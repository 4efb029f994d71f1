#include <cstdint>
#include <type_traits>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "gang/kernels/fold_table.h"

namespace gangway::host::portable {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline void load_f16(float* __restrict acc, const F16* in, size_t n) {
  for (size_t i = 0; i < n; ++i) acc[i] = to_f32(f16_t{in[i].bits});
}

inline void store_f16(F16* __restrict out, const float* acc, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i].bits = to_f16(acc[i]).bits;
}

#include "gang/kernels/fold_kernels.inc"

#if defined(__x86_64__)
void stream(unsigned char* to, const unsigned char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
}
#else
void stream(unsigned char* to, const unsigned char* from, size_t bytes) { copy_bytes(to, from, bytes); }
#endif

}  // namespace

const FoldKernels kKernels{fold, add, stream, "portable"};

}  // namespace gangway::host::portable
