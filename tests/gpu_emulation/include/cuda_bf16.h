// CUDA's bfloat16, as far as Gangway's kernels use it: storage and conversion.
#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// To nearest, ties to even; every NaN becomes 0x7fff, as on the device.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
