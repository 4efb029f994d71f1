// CUDA's half, as far as Gangway's kernels use it: storage and conversion.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __half {
  uint16_t bits;
};

inline float __half2float(__half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31u,
                 mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -small : small;
}

// To nearest, ties to even; every NaN becomes 0x7fff, as on the device.
inline __half __float2half_rn(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = u >> 16 & 0x8000u;
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  const float size = std::fabs(x);
  if (size >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (size < 0x1p-14f)  // subnormal: a multiple of 2^-24, rounded by the addition
    return {static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyintf(size * 0x1p24f)))};
  const uint32_t v = u & 0x7fffffffu;
  return {static_cast<uint16_t>(sign | ((v - 0x38000000u + 0xfffu + (v >> 13 & 1u)) >> 13))};
}
