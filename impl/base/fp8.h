// The two 8-bit floats of "OCP 8-bit floating point specification (OFP8)", 2023, as constexpr functions for
// the host and for kernels. e4m3 has no infinity; e5m2 has the exponents of f16.
//
// Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace gangway {

struct E4m3 {
  static constexpr int kFractionBits = 3, kBias = 7;
  static constexpr float kTop = 448;  // the largest number
  static constexpr uint32_t kTopCode = 0x7e, kNan = 0x7f;
  static constexpr bool kHasInfinity = false;
};
struct E5m2 {
  static constexpr int kFractionBits = 2, kBias = 15;
  static constexpr float kTop = 57344;
  static constexpr uint32_t kTopCode = 0x7b, kNan = 0x7f;
  static constexpr bool kHasInfinity = true;
};

// Rounds to nearest, ties to even. Magnitudes over the top become the top, infinity too. A NaN stays one.
template <typename Format>
constexpr uint8_t to_fp8(float x) {
  constexpr int kShift = 23 - Format::kFractionBits;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - Format::kBias) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) << Format::kFractionBits;
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | Format::kNan);
  if (magnitude >= std::bit_cast<uint32_t>(Format::kTop))
    return static_cast<uint8_t>(sign | Format::kTopCode);
  if (magnitude < kLeastNormal) {
    // A power of two whose last bit in f32 has the value of the least code: the addition rounds to that bit.
    constexpr uint32_t kPower = static_cast<uint32_t>(151 - Format::kBias - Format::kFractionBits) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kPower);
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(sum) - kPower));
  }
  const uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1u) + (magnitude >> kShift & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> kShift) - kRebias));
}

// Returns the number of a code. Every one is exact in f32.
template <typename Format>
constexpr float from_fp8(uint8_t code) {
  constexpr uint32_t kFractions = (1u << Format::kFractionBits) - 1u;
  const uint32_t magnitude = code & 0x7fu, exponent = magnitude >> Format::kFractionBits;
  const float sign = (code & 0x80u) != 0 ? -1.0f : 1.0f;
  if (Format::kHasInfinity ? magnitude > 0x7cu : magnitude == Format::kNan)
    return sign * std::numeric_limits<float>::quiet_NaN();
  if (Format::kHasInfinity && magnitude == 0x7cu) return sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) {
    constexpr uint32_t kLeast = static_cast<uint32_t>(128 - Format::kBias - Format::kFractionBits) << 23;
    return sign * static_cast<float>(magnitude) * std::bit_cast<float>(kLeast);
  }
  const uint32_t wide = (exponent + static_cast<uint32_t>(127 - Format::kBias)) << 23 |
                        (magnitude & kFractions) << (23 - Format::kFractionBits);
  return sign * std::bit_cast<float>(wide);
}

}  // namespace gangway
