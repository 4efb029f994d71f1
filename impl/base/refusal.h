// A rank's own refusal as a value. The rank takes it into the check phase in which its peers are, so that
// every rank returns the same error.
//
// Thread rule: values, no shared state.
#pragma once

#include <exception>
#include <optional>

#include "base/error.h"

namespace gangway {

// Returns the exception that is being handled; call it inside a catch block. It never fails, because peers
// wait for this rank's answer: without memory for its text, an Error still keeps its code.
Error current_error() noexcept;

// Runs `check`, which throws to refuse, and returns what it threw.
template <typename Check>
std::optional<Error> error_thrown_by(Check&& check) {
  try {
    check();
    return std::nullopt;
  } catch (const std::exception&) {
    return current_error();
  }
}

}  // namespace gangway
