#include "base/deadline.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gangway {
namespace {

TEST(Deadline, NegativeAndEndlessTimesNeverPass) {
  for (const int64_t ms : {int64_t{-1}, INT64_MIN, INT64_MAX, INT64_MAX / 1000000}) {
    const Deadline deadline = Deadline::after_ms(ms);
    EXPECT_TRUE(deadline.is_never()) << ms;
    EXPECT_FALSE(deadline.passed()) << ms;
    EXPECT_EQ(deadline.left_ms(77), 77) << ms;
  }
}

TEST(Deadline, CountsDownToZeroAndNeverPastTheCap) {
  EXPECT_TRUE(Deadline::after_ms(0).passed());
  EXPECT_EQ(Deadline::after_ms(0).left_ms(50), 0);
  const Deadline hour = Deadline::after_ms(3600 * 1000);
  EXPECT_FALSE(hour.passed());
  EXPECT_EQ(hour.left_ms(50), 50);
  EXPECT_GT(hour.left_ms(INT64_MAX), 3500 * 1000);
}

}  // namespace
}  // namespace gangway
