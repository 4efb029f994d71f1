#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace gangway {
namespace {

using Kind = LrSchedule::Kind;

TEST(Schedule, ConstantIsOneAfterItsWarmup) {
  const LrSchedule plain;
  EXPECT_EQ(factor(plain, 1), 1);
  EXPECT_EQ(factor(plain, 1'000'000), 1);
  const LrSchedule warm{Kind::constant, 4, 0, 0};
  EXPECT_DOUBLE_EQ(factor(warm, 1), 0.25);
  EXPECT_DOUBLE_EQ(factor(warm, 3), 0.75);
  EXPECT_EQ(factor(warm, 4), 1);
  EXPECT_EQ(factor(warm, 100), 1);
}

TEST(Schedule, LinearFallsEvenlyToItsFinalRatio) {
  const LrSchedule s{Kind::linear, 2, 12, 0.1};
  EXPECT_DOUBLE_EQ(factor(s, 1), 0.5);
  EXPECT_DOUBLE_EQ(factor(s, 2), 1);
  EXPECT_DOUBLE_EQ(factor(s, 7), 0.55);
  EXPECT_DOUBLE_EQ(factor(s, 12), 0.1);
  EXPECT_DOUBLE_EQ(factor(s, 13), 0.1);
}

TEST(Schedule, CosineIsHalfwayInTheMiddle) {
  const LrSchedule s{Kind::cosine, 0, 100, 0.2};
  EXPECT_NEAR(factor(s, 0), 1, 1e-15);
  EXPECT_NEAR(factor(s, 25), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(factor(s, 50), 0.6, 1e-15);
  EXPECT_EQ(factor(s, 100), 0.2);
  EXPECT_EQ(factor(s, 5000), 0.2);
}

TEST(Schedule, RefusesWhatHasNoMeaning) {
  const auto refused = [](const LrSchedule& s) {
    try {
      check(s);
    } catch (const Error& error) {
      return error.code() == Code::invalid_argument;
    }
    return false;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(refused({}));
  EXPECT_FALSE(refused({Kind::cosine, 3, 4, 1}));
  EXPECT_TRUE(refused({Kind::constant, -1, 0, 0}));
  EXPECT_TRUE(refused({Kind::constant, 0, -1, 0}));
  EXPECT_TRUE(refused({Kind::linear, 0, 0, 0}));
  EXPECT_TRUE(refused({Kind::linear, 4, 4, 0}));
  EXPECT_TRUE(refused({Kind::cosine, 9, 4, 0}));
  EXPECT_TRUE(refused({Kind::cosine, 0, 4, -0.1}));
  EXPECT_TRUE(refused({Kind::cosine, 0, 4, 1.1}));
  EXPECT_TRUE(refused({Kind::constant, 0, 0, nan}));
  EXPECT_TRUE(refused({static_cast<Kind>(7), 0, 4, 0}));
}

}  // namespace
}  // namespace gangway
