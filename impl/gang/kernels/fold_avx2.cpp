#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "gang/kernels/fold_table.h"

namespace gangway::host::avx2 {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline void load_f16(float* __restrict acc, const F16* in, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(acc + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  for (; i < n; ++i) acc[i] = _cvtsh_ss(in[i].bits);
}

inline void store_f16(F16* __restrict out, const float* acc, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(acc + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) out[i].bits = static_cast<uint16_t>(_cvtss_sh(acc[i], _MM_FROUND_TO_NEAREST_INT));
}

#include "gang/kernels/fold_kernels.inc"

void stream(unsigned char* to, const unsigned char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(__m256i))
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at)));
}

}  // namespace

const FoldKernels kKernels{fold, add, stream, "avx2"};

}  // namespace gangway::host::avx2
