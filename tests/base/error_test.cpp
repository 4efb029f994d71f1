#include "base/error.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/expect_error.h"

namespace gangway {
namespace {

std::string printed(double value) {
  char digits[64];
  std::snprintf(digits, sizeof digits, "%g", value);
  return digits;
}

TEST(Text, JoinsTextsCharactersAndNumbers) {
  const std::string owned = "owned";
  const char array[] = "array";
  EXPECT_EQ(text("a ", owned, ' ', std::string_view("viewed").substr(0, 4), " ", array, ": ", 3, " of ", 4u),
            "a owned view array: 3 of 4");
  EXPECT_EQ(text(), "");
  EXPECT_EQ(text("", std::string()), "");
}

TEST(Text, WritesTheEndsOfTheIntegers) {
  EXPECT_EQ(text(INT64_MIN, " ", INT64_MAX, " ", UINT64_MAX, " ", static_cast<int16_t>(-1), " ", true, false),
            "-9223372036854775808 9223372036854775807 18446744073709551615 -1 10");
}

TEST(Text, WritesEnumeratorsAndSmallNumbersAsNumbers) {
  enum Plain { kNone, kSix = 6 };
  enum Small : uint8_t { kSeven = 7 };
  EXPECT_EQ(text(kNone, " ", kSix, " ", kSeven, " ", kSix - 1, " ", uint8_t{65}, " ", int8_t{-1}),
            "0 6 7 5 65 -1");
}

TEST(Text, WritesRealNumbersWithSixDigitsAsPrintf) {
  for (const double value :
       {0.0, -0.0, 1.0, 0.1, 1e5, 1e6, 123456.7, 1234567.0, 1e-4, 1e-5, 1.0 / 3, DBL_MAX, DBL_MIN,
        DBL_TRUE_MIN, HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(text(value), printed(value));
  EXPECT_EQ(text(0.1f), "0.1");
}

TEST(Text, WritesAnAddressInHexadecimalDigits) {
  EXPECT_EQ(text(reinterpret_cast<void*>(uintptr_t{0xab0})), "0xab0");
}

TEST(Fail, ThrowsItsCodeAndText) {
  test::expect_error(Code::io, "rank 3: gone", [] { fail(Code::io, "rank ", 3, ": gone"); });
}

TEST(Check, NamesTheConditionAndBothValues) {
  const int one = 1, two = 2;
  const Error error = test::error_of([&] { GW_CHECK(one, ==, two); });
  EXPECT_EQ(error.code(), Code::internal);
  EXPECT_NE(error.message().find("error_test.cpp:"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find(": one == two does not hold (1 and 2)"), std::string::npos)
      << error.message();
}

}  // namespace
}  // namespace gangway
