// Waits in mid-protocol: peers count on what this rank does next, so the caller's interrupt breaks the gang,
// as it does in a blocking call of the gang itself.
#pragma once

#include "gang/gang.h"

namespace gangway {

template <typename Wait>
void wait_or_break(Gang& gang, Wait&& wait) {
  try {
    wait();
  } catch (const Error& error) {
    if (error.code() == Code::caller) gang.abort(error);
    throw;
  }
}

}  // namespace gangway
