#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace gangway {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32-10).
TEST(Philox, GivesThePublishedBlocks) {
  EXPECT_EQ(philox(0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, NormalsAgreeWithTheCLibraryToRounding) {
  for (uint64_t block = 0; block < 20000; ++block) {
    const PhiloxBlock r = philox(42, block);
    const double u1 = static_cast<double>(((static_cast<uint64_t>(r[1]) << 32 | r[0]) >> 11) + 1) * 0x1p-53;
    const double u2 = static_cast<double>((static_cast<uint64_t>(r[3]) << 32 | r[2]) >> 11) * 0x1p-53;
    const double radius = std::sqrt(-2 * std::log(u1));
    EXPECT_NEAR(philox_normal(42, 2 * block), radius * std::cos(2 * std::numbers::pi * u2), 4e-15);
    EXPECT_NEAR(philox_normal(42, 2 * block + 1), radius * std::sin(2 * std::numbers::pi * u2), 4e-15);
  }
}

TEST(Philox, AnyRangeHasTheSameBitsAsOneByOne) {
  for (uint64_t first : {0ull, 1ull, 7ull}) {
    for (size_t count : {0u, 1u, 2u, 5u, 64u}) {
      std::vector<double> out(count);
      philox_normals(7, first, count, 0.02, out.data());
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(out[i], philox_normal(7, first + i) * 0.02);
    }
  }
}

// Frozen: the initialisation formula is part of the ABI.
TEST(Philox, GoldenNormalsOfAParameterNameStay) {
  const uint64_t key = philox_key(1, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(key, 0x76c90217961a061ull);
  EXPECT_EQ(philox_normal(key, 0), 0x1.0732482c2757bp+0);
  EXPECT_EQ(philox_normal(key, 1), -0x1.444ea53dc49bap+0);
  EXPECT_EQ(philox_normal(key, 1000003), -0x1.71b4fe84bead3p-1);
}

TEST(Philox, UniformsLieInTheHalfOpenUnitInterval) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = philox_uniform(3, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

}  // namespace
}  // namespace gangway
