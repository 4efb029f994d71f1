// A rank's own refusal as a value: it joins the check phase that peers are in, so that every rank returns it.
//
// Thread rule: values, no shared state.
#pragma once

#include <exception>
#include <optional>

#include "base/error.h"

namespace gangway {

// Inside a catch block. Without memory for its words an Error keeps its code: peers wait for this rank's
// word.
Error caught_refusal() noexcept;

// Runs `check`, which throws to refuse.
template <typename Check>
std::optional<Error> refusal_of(Check&& check) {
  try {
    check();
    return std::nullopt;
  } catch (const std::exception&) {
    return caught_refusal();
  }
}

}  // namespace gangway
