#include <limits>

#include "base/dtype.h"
#include "ops/cpu/kernels/kernels.h"
#include "ops/kernel_testing.h"
#include "ops/simd_probe.h"

namespace gangway {
namespace {

using namespace ops_testing;

class Simd : public EachIsa {
 protected:
  const cpu::SimdProbe& probe() const {
    return cpu::choose(GetParam(), cpu::portable::simd_probe, cpu::avx2::simd_probe, cpu::avx512::simd_probe);
  }
};

// Every 64th bit pattern from 0 to infinity, both signs.
std::vector<float> many_floats() {
  std::vector<float> x;
  for (uint32_t u = 0; u < 0x7f800000u; u += 797)
    for (uint32_t sign : {0u, 0x80000000u}) {
      const uint32_t pattern = u | sign;
      float f;
      std::memcpy(&f, &pattern, 4);
      x.push_back(f);
    }
  return x;
}

// Distance from the exact value in units of the last place of its f32 neighbourhood (denormals: 2^-149).
double ulps(float got, double want) {
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST_P(Simd, ExpIsWithinTwoUlp) {
  const std::vector<float> x = many_floats();
  std::vector<float> y(x.size()), flushed(x.size());
  probe().exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
  probe().exp_flush(x.data(), flushed.data(), static_cast<int64_t>(x.size()));
  double worst = 0, worst_flushed = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    if (want > std::numeric_limits<float>::max()) {
      ASSERT_TRUE(std::isinf(y[i]) || ulps(y[i], want) <= 2) << x[i];
    } else {
      ASSERT_FALSE(std::isinf(y[i]) || std::isnan(y[i])) << x[i];
      worst = std::max(worst, ulps(y[i], want));
    }
    if (x[i] > 87 || (x[i] < -87.2f && x[i] > -88.1f)) continue;
    if (x[i] <= -88.1f) {
      ASSERT_EQ(flushed[i], 0) << x[i];
    } else {
      worst_flushed = std::max(worst_flushed, ulps(flushed[i], want));
    }
  }
  EXPECT_LE(worst, 2);
  EXPECT_LE(worst_flushed, 2);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_P(Simd, ExpOfSpecialValues) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {0.0f, -0.0f, inf, -inf, nan, 1000, -1000, 1};
  float y[8];
  probe().exp(x, y, 8);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], inf);
  EXPECT_EQ(y[3], 0);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], inf);
  EXPECT_EQ(y[6], 0);
  probe().exp_flush(x, y, 8);
  EXPECT_EQ(y[3], 0);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[6], 0);
  const double x64[] = {0, -800, 1.5};
  double y64[3];
  probe().exp_f64(x64, y64, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(y64[i], std::exp(x64[i]));
}

// The same bits as base/dtype.h for every bf16, every rounding neighbour, and any tail.
TEST_P(Simd, Bf16RoundsLikeTheScalar) {
  std::vector<float> x;
  for (uint32_t high = 0; high < 0x10000u; ++high)
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const uint32_t pattern = high << 16 | low;
      float f;
      std::memcpy(&f, &pattern, 4);
      x.push_back(f);
    }
  x.pop_back();  // an odd tail
  std::vector<bf16_t> y(x.size());
  std::vector<float> back(x.size());
  probe().narrow(x.data(), y.data(), static_cast<int64_t>(x.size()));
  probe().widen(y.data(), back.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i].bits, to_bf16(x[i]).bits) << i;
    const float want = to_f32(y[i]);
    ASSERT_EQ(std::memcmp(&back[i], &want, 4), 0) << i;
  }
}

// The same bits as base/dtype.cpp for all halves, around every tie between two of them, beyond the largest, NaNs, and
// floats all over the range.
TEST_P(Simd, F16RoundsLikeTheScalar) {
  std::vector<f16_t> halves;
  std::vector<float> x = many_floats();
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) halves.push_back({static_cast<uint16_t>(bits)});
  for (uint16_t size = 0; size < 0x7c00u; ++size) {
    const float at = to_f32(f16_t{size});
    const float next = size == 0x7bffu ? 65536.0f : to_f32(f16_t{static_cast<uint16_t>(size + 1)});
    const float tie = (at + next) / 2;
    for (const float f :
         {at, std::nextafter(at, 1e9f), std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 1e9f)})
      for (const float sign : {1.0f, -1.0f}) x.push_back(sign * f);
  }
  for (uint32_t nan = 0x7f800000u; nan < 0x80000000u; nan += 4093)  // infinity first
    for (uint32_t sign : {0u, 0x80000000u}) {
      const uint32_t pattern = nan | sign;
      x.emplace_back();
      std::memcpy(&x.back(), &pattern, 4);
    }
  halves.pop_back(), x.resize(x.size() / 2 * 2 - 1);  // odd tails
  std::vector<float> wide(halves.size());
  probe().widen_f16(halves.data(), wide.data(), static_cast<int64_t>(halves.size()));
  for (size_t i = 0; i < halves.size(); ++i) {
    const float want = to_f32(halves[i]), scalar = probe().scalar_f16(halves[i]);
    ASSERT_EQ(std::memcmp(&wide[i], &want, 4), 0) << i;
    ASSERT_EQ(std::memcmp(&scalar, &want, 4), 0) << i;
  }
  std::vector<f16_t> y(x.size());
  probe().narrow_f16(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, to_f16(x[i]).bits) << i << ": " << x[i];
}

TEST_P(Simd, TailsTouchNothingElse) {
  for (int64_t n = 1; n < 40; ++n) {
    std::vector<float> x(static_cast<size_t>(n),
                         2.5f);  // exact size: the address sanitizer watches the reads
    std::vector<float> y(static_cast<size_t>(n) + 1, -1);
    probe().exp(x.data(), y.data(), n);
    EXPECT_EQ(y.back(), -1);
    std::vector<bf16_t> z(static_cast<size_t>(n) + 1, bf16_t{0x1234});
    probe().narrow(x.data(), z.data(), n);
    EXPECT_EQ(z.back().bits, 0x1234);
    EXPECT_EQ(z[static_cast<size_t>(n) - 1].bits, to_bf16(2.5f).bits);
    std::vector<f16_t> h(static_cast<size_t>(n) + 1, f16_t{0x1234});
    probe().narrow_f16(x.data(), h.data(), n);
    EXPECT_EQ(h.back().bits, 0x1234);
    EXPECT_EQ(h[static_cast<size_t>(n) - 1].bits, to_f16(2.5f).bits);
  }
}

TEST_P(Simd, SumMaximumAndTheRoundTripToF64AreRight) {
  const int lanes = probe().bytes / 4;
  std::vector<float> x(static_cast<size_t>(lanes)), y(x.size());
  for (int i = 0; i < lanes; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i == 1 ? 100 : i);
  EXPECT_EQ(probe().sum(x.data()), static_cast<float>(lanes * (lanes - 1) / 2 + 99));
  EXPECT_EQ(probe().max_lane(x.data()), 100);
  probe().round_trip_f64(x.data(), y.data(), lanes);
  EXPECT_EQ(x, y);
}

template <typename T>
void expect_transposed(void (*transpose)(T*), int lanes) {
  std::vector<T> square(static_cast<size_t>(lanes * lanes));
  for (size_t i = 0; i < square.size(); ++i) square[i] = static_cast<T>(i);
  transpose(square.data());
  for (int i = 0; i < lanes; ++i)
    for (int j = 0; j < lanes; ++j)
      ASSERT_EQ(square[static_cast<size_t>(i * lanes + j)], static_cast<T>(j * lanes + i)) << i << ", " << j;
}

TEST_P(Simd, TransposesSquares) {
  expect_transposed(probe().transpose, probe().bytes / 4);
  expect_transposed(probe().transpose_f64, probe().bytes / 8);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Simd, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
