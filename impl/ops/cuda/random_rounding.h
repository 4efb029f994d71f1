// The random words of elements and the rounding of states by them (ops/random_rounding.h), inside kernels.
//
// Thread rule: pure functions.
#pragma once

#include <bit>

#include "base/philox_math.h"
#include "ops/cuda/arrays.h"
#include "ops/random_rounding.h"

namespace gangway::cuda {

template <int n>
struct RandomWords {
  uint32_t at[n];
};

// The words of the shard's elements [at, at + n).
template <int n>
__device__ inline RandomWords<n> random_words(const RandomRounding& rounding, int64_t at) {
  RandomWords<n> words;
  PhiloxBlock block = {};
  uint64_t held = ~uint64_t{0};  // the number of `block`; no element has this one
  for (int i = 0; i < n; ++i) {
    int64_t index = rounding.first + at + i;
    if (rounding.columns != rounding.stride)
      index = rounding.first + (at + i) / rounding.columns * rounding.stride + (at + i) % rounding.columns;
    const uint64_t wanted = static_cast<uint64_t>(index) >> 2;
    if (wanted != held) block = philox_math::block_of(rounding.key, wanted);
    held = wanted;
    words.at[i] = block[static_cast<size_t>(index & 3)];
  }
  return words;
}

// As write, but a state in bf16 is rounded by 16 bits of its words, from bit `shift` on. A NaN stays a NaN.
template <int n, typename S>
__device__ inline void write_state(const Array& a, int64_t at, const Pack<S, n>& pack,
                                   const RandomWords<n>& words, uint32_t shift) {
  if (a.dtype != DType::bf16) return write<n>(a, at, pack);
  Pack<Bf16, n> stored;
  for (int i = 0; i < n; ++i) {
    const float x = static_cast<float>(pack.at[i]);
    const uint32_t up = (words.at[i] >> shift) & 0xffffu;
    const float rounded = std::bit_cast<float>((std::bit_cast<uint32_t>(x) + up) & 0xffff0000u);
    stored.at[i] = narrow<Bf16>(x == x ? rounded : x);
  }
  store<n>(static_cast<Bf16*>(a.data) + at, stored);
}

}  // namespace gangway::cuda
