// What a refusal must be: code and text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error_of.h"

namespace gangway::test {

template <typename Call>
void expect_error(Code code, const std::string& message, Call&& call) {
  const Error error = error_of(call);
  EXPECT_STREQ(name(error.code()), name(code)) << error.message();
  EXPECT_EQ(error.message(), message);
}

}  // namespace gangway::test
