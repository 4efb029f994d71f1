#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace gangway {
namespace {

TEST(DType, KnowsItemBytesAndNames) {
  EXPECT_EQ(item_bytes(DType::f64), 8u);
  EXPECT_EQ(item_bytes(DType::bf16), 2u);
  EXPECT_EQ(item_bytes(DType::c128), 16u);
  EXPECT_EQ(name(DType::boolean), "bool");
  EXPECT_EQ(static_cast<int32_t>(DType::f32), 2 | 32 << 8 | 1 << 16);
}

TEST(DType, EveryF16RoundTripsThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16_t h{static_cast<uint16_t>(bits)};
    const float f = to_f32(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_f32(to_f16(f))));
    } else {
      EXPECT_EQ(to_f16(f).bits, bits);
    }
  }
}

// Nearest of the finite halves by search, ties to the even pattern, from 65520 on infinity.
uint16_t nearest_half(float f) {
  const uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(f));
  if (magnitude >= 65520) return sign | 0x7c00;
  uint16_t low = 0, high = 0x7bff;  // the value of a pattern grows with the pattern
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (static_cast<double>(to_f32(f16_t{middle})) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - static_cast<double>(to_f32(f16_t{low}));
  const double above = static_cast<double>(to_f32(f16_t{high})) - magnitude;
  return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

TEST(DType, F16ConversionRoundsToTheNearestAndTiesToEven) {
  for (uint64_t u = 0; u < 0x100000000ull; u += 40503) {
    const uint32_t bits = static_cast<uint32_t>(u);
    float f;
    __builtin_memcpy(&f, &bits, 4);
    if (std::isnan(f)) continue;
    EXPECT_EQ(to_f16(f).bits, nearest_half(f)) << f;
  }
  EXPECT_EQ(to_f16(2049.0f).bits, nearest_half(2049.0f));  // a tie
}

// As the instructions of x86 (F16C) give it.
TEST(DType, F16KeepsTheSignAndTheUpperBitsOfANanAndMakesItQuiet) {
  const uint32_t pattern = 0xff804123u;
  float f;
  std::memcpy(&f, &pattern, 4);
  EXPECT_EQ(to_f16(f).bits, 0xfe02);
  const float wide = to_f32(f16_t{0xfc01});
  uint32_t bits;
  std::memcpy(&bits, &wide, 4);
  EXPECT_EQ(bits, 0xffc02000u);
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // half way: to even
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(NAN))));
  EXPECT_TRUE(std::isinf(to_f32(to_bf16(3.4e38f))));
}

}  // namespace
}  // namespace gangway
