// What a call throws, for tests and for the ranks that they start.
#pragma once

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

}  // namespace gangway::test
