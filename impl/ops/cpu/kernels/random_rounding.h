// Random words for blocks of elements (ops/random_rounding.h), and the rounding of a block to bf16 by them.
// Only kernels include it.
//
// Thread rule: pure functions; memory is the caller's.
#pragma once

#include "ops/cpu/kernels/convert.h"
#include "ops/random_rounding.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {

typedef uint64_t U64 __attribute__((vector_size(kBytes)));

// The products of the low halves of the lanes. Compilers make three multiplications of it by themselves.
GW_SIMD U64 mul_low(U64 a, U64 b) {
#if defined(__AVX512F__)
  return (U64)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (U64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Rounds up with the probability of what lies above the lower of the two neighbours; `random` has 16 random
// bits in each lane. A NaN stays a NaN, and infinity stays.
GW_SIMD H16 narrow_bf16_at_random(F32 x, U32 random) {
  const U32 u = bits<U32>(x);
  const U32 rounded = (u + random) >> 16;
  const U32 quiet = (u >> 16) | 0x40u;
  const U32 is_nan = bits<U32>(x != x);
  return narrow_u16((quiet & is_nan) | (rounded & ~is_nan));
}

// Philox 4x32-10 as in base/philox_math.h, a block of four words in each lane. The upper halves of the lanes
// hold remains, which mul_low does not read.
struct PhiloxWords {
  U64 words[4];
};
GW_SIMD PhiloxWords philox_words(uint64_t key, uint64_t first_block) {
  const U64 multiplier0 = U64{} + 0xD2511F53u, multiplier1 = U64{} + 0xCD9E8D57u;
  U64 index = U64{} + first_block;
  for (int i = 0; i < kLanes64; ++i) index[i] += static_cast<uint64_t>(i);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxWords c = {{index, index >> 32, U64{}, U64{}}};
  for (int round = 0; round < 10; ++round) {
    const U64 p0 = mul_low(c.words[0], multiplier0), p1 = mul_low(c.words[2], multiplier1);
    c = {{(p1 >> 32) ^ c.words[1] ^ k0, p1, (p0 >> 32) ^ c.words[3] ^ k1, p0}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Writes the words of the elements [first, first + n) of the whole tensor.
inline void random_words(uint64_t key, int64_t first, int64_t n, uint32_t* out) {
  int64_t block = first / 4, at = -(first % 4);  // the place in `out` of a block's first word
  for (; at < n; block += kLanes64, at += 4 * kLanes64) {
    const PhiloxWords made = philox_words(key, static_cast<uint64_t>(block));
    uint32_t words[4 * kLanes64];
    for (int w = 0; w < 4; ++w)
      for (int lane = 0; lane < kLanes64; ++lane)
        words[4 * lane + w] = static_cast<uint32_t>(made.words[w][lane]);
    const int64_t from = at < 0 ? -at : 0, to = n - at < 4 * kLanes64 ? n - at : 4 * kLanes64;
    for (int64_t i = from; i < to; ++i) out[at + i] = words[i];
  }
}

// Writes the words of the shard's elements [at, at + n).
inline void random_words(const RandomRounding& rounding, int64_t at, int64_t n, uint32_t* out) {
  if (rounding.columns == rounding.stride) return random_words(rounding.key, rounding.first + at, n, out);
  while (n > 0) {
    const int64_t column = at % rounding.columns, rest = rounding.columns - column,
                  count = rest < n ? rest : n;
    random_words(rounding.key, rounding.first + at / rounding.columns * rounding.stride + column, count, out);
    at += count, out += count, n -= count;
  }
}

GW_SIMD int lanes_of(Full) { return kLanes32; }
GW_SIMD int lanes_of(Part part) { return part.n; }

// As write_block, but a state in bf16 is rounded by 16 bits of its words, from bit `shift` on.
template <typename S>
void write_state(DType dtype, void* to, int64_t at, int64_t n, const S* block, const uint32_t* words,
                 uint32_t shift) {
  if (dtype != DType::bf16) return write_block(dtype, to, at, n, block);
  float through[kConvertBlock];
  const float* x = through;
  if constexpr (sizeof(S) == sizeof(float))
    x = block;
  else
    convert(block, through, n);
  bf16_t* const y = static_cast<bf16_t*>(to) + at;
  for_lanes<float>(
      n, [&](int64_t i, auto part) __attribute__((always_inline)) {
        const auto lanes = static_cast<size_t>(lanes_of(part));
        U32 random{};
        __builtin_memcpy(&random, words + i, lanes * sizeof(uint32_t));
        const H16 rounded = narrow_bf16_at_random(load(x + i, part), (random >> shift) & 0xffffu);
        __builtin_memcpy(static_cast<void*>(y + i), &rounded, lanes * sizeof(bf16_t));
      });
}

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
