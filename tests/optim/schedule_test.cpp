#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/expect_error.h"
#include "support/tensor_file.h"

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

TEST(Schedule, LinearFallsEvenlyToItsFinalRatioBehindTheLastStep) {
  const LrSchedule s{Kind::linear, 2, 12, 0.1};
  EXPECT_DOUBLE_EQ(factor(s, 1), 0.5);
  EXPECT_DOUBLE_EQ(factor(s, 2), 1);
  EXPECT_DOUBLE_EQ(factor(s, 3), 1);
  EXPECT_DOUBLE_EQ(factor(s, 8), 0.55);
  EXPECT_DOUBLE_EQ(factor(s, 12), 0.19);
  EXPECT_DOUBLE_EQ(factor(s, 13), 0.1);
  EXPECT_DOUBLE_EQ(factor(s, 14), 0.1);
}

// As LinearLR and CosineAnnealingLR of PyTorch, and the schedules of transformers: of T steps the first has
// the full rate, and the last one has the rate that T - 1 steps have left.
TEST(Schedule, WithoutAWarmUpTheFirstStepHasTheFullRateAndTheLastHasSome) {
  for (const int64_t total : {1, 2, 3, 10, 1000})
    for (int64_t step = 1; step <= total; ++step) {
      const double done = static_cast<double>(step - 1) / static_cast<double>(total);
      EXPECT_NEAR(factor({Kind::linear, 0, total, 0}, step), 1 - done, 1e-15) << step << " of " << total;
      EXPECT_NEAR(factor({Kind::cosine, 0, total, 0}, step), (1 + std::cos(std::acos(-1.0) * done)) / 2,
                  1e-15)
          << step << " of " << total;
      EXPECT_GT(factor({Kind::wsd_sqrt, 0, total, 0}, step), 0) << step << " of " << total;
    }
}

TEST(Schedule, CosineIsHalfwayInTheMiddle) {
  const LrSchedule s{Kind::cosine, 0, 100, 0.2};
  EXPECT_NEAR(factor(s, 1), 1, 1e-15);
  EXPECT_NEAR(factor(s, 26), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(factor(s, 51), 0.6, 1e-15);
  EXPECT_EQ(factor(s, 101), 0.2);
  EXPECT_EQ(factor(s, 5000), 0.2);
}

// The rates of Hugging Face transformers, with a warm-up that gives the first step a rate.
TEST(Schedule, EqualsTheReferenceInAHundredSteps) {
  const test::TensorFile file("schedules");
  const nlohmann::json settings = nlohmann::json::parse(file.settings);
  const double peak = settings.at("peak"), least = settings.at("min_ratio");
  const int64_t warmup = settings.at("warmup"), total = settings.at("total"), decay = settings.at("decay");
  struct Row {
    const char* name;
    LrSchedule schedule;
  };
  const Row rows[] = {
      {"cosine", {Kind::cosine, warmup, total, least}},
      {"wsd_linear", {Kind::wsd, warmup, total, least, decay}},
      {"wsd_linear_to_zero", {Kind::wsd, warmup, total, 0, decay}},
      {"wsd_1-sqrt", {Kind::wsd_sqrt, warmup, total, least, decay}},
      {"wsd_1-sqrt_to_zero", {Kind::wsd_sqrt, warmup, total, 0, decay}},
      {"wsd_cosine", {Kind::cosine, warmup, total, least, decay}},
      {"wsd_cosine_to_zero", {Kind::cosine, warmup, total, 0, decay}},
  };
  EXPECT_EQ(std::size(rows), file.entries.size());
  for (const Row& row : rows) {
    check(row.schedule);
    const std::vector<double>& rates = file.values(row.name);
    for (size_t t = 0; t < rates.size(); ++t)
      ASSERT_NEAR(peak * factor(row.schedule, static_cast<int64_t>(t) + 1), rates[t], 1e-12 * peak)
          << row.name << ", step " << t;
  }
}

TEST(Schedule, WsdDecaysInTheLastTenthUnlessDecayStepsAreGiven) {
  const LrSchedule s{Kind::wsd, 3, 100, 0};
  EXPECT_EQ(factor(s, 3), 1);
  EXPECT_EQ(factor(s, 91), 1);
  EXPECT_DOUBLE_EQ(factor(s, 92), 0.9);
  EXPECT_DOUBLE_EQ(factor(s, 100), 0.1);
  EXPECT_EQ(factor(s, 101), 0);
  const LrSchedule shortest{Kind::wsd, 0, 1, 0};
  EXPECT_EQ(factor(shortest, 1), 1);
  EXPECT_EQ(factor(shortest, 2), 0);
}

TEST(Schedule, InverseSqrtFallsFromTheEndOfTheWarmUp) {
  const LrSchedule s{Kind::inverse_sqrt, 4, 0, 0.25};
  EXPECT_EQ(factor(s, 1), 0.25);
  EXPECT_EQ(factor(s, 4), 1);
  EXPECT_EQ(factor(s, 5), 1);
  EXPECT_DOUBLE_EQ(factor(s, 17), 0.5);
  EXPECT_DOUBLE_EQ(factor(s, 1'000'000), 0.25);
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
  EXPECT_TRUE(refused({Kind::inverse_sqrt, 0, 4, 0}));
  EXPECT_TRUE(refused({Kind::wsd, 0, 4, 0, -1}));
  EXPECT_FALSE(refused({Kind::wsd, 1, 4, 0, 3}));
}

TEST(Schedule, ADecayThatDoesNotFitIsRefusedWithTheNumbers) {
  EXPECT_EQ(
      test::error_of([] {
        check({Kind::wsd, 7, 10, 0, 4});
      }).message(),
      "schedule: decay_steps = 4 is over 3, the steps that warmup_steps = 7 leaves of total_steps = 10");
}

}  // namespace
}  // namespace gangway
