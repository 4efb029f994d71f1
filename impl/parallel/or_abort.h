// What a call does together with its peers after its check phase: whatever fails on one rank then, want of
// memory too, must reach those that wait for this rank.
//
// Thread rule: that of the gangs.
#pragma once

#include "mesh/gangs.h"

namespace gangway {

// Runs `body`; when it fails, breaks every gang with that error, so that no peer waits for this rank, and
// throws it.
[[noreturn]] void abort_and_throw(Gangs& gangs, const char* call);  // inside a catch block
template <typename Body>
decltype(auto) or_abort(Gangs& gangs, const char* call, Body&& body) {
  try {
    return body();
  } catch (...) {
    abort_and_throw(gangs, call);
  }
}

// Likewise, but a rank that is alone has nobody to tell, and works on.
template <typename Body>
decltype(auto) or_abort_peers(Gangs& gangs, const char* call, Body&& body) {
  if (gangs.root()->size() == 1) return body();
  return or_abort(gangs, call, body);
}

}  // namespace gangway
