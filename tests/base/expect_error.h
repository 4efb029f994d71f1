// What a refusal must be: code and text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace gangway::test {

template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

template <typename Call>
void expect_error(Code code, const std::string& message, Call&& call) {
  const Error error = error_of(call);
  EXPECT_STREQ(name(error.code()), name(code)) << error.message();
  EXPECT_EQ(error.message(), message);
}

}  // namespace gangway::test
