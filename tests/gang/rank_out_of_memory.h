// A collective call while one of the ranks has little memory. For programs that include base/out_of_memory.h.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/out_of_memory.h"
#include "gang/gang.h"

namespace gangway::test {

// This rank's part of `call`; rank 1 has `allocations` of memory for it, then none or (`once`) all but one. No rank may end
// but well, without memory or told so by a peer. True on rank 1: that was enough.
template <typename Call>
bool made_with(Gang& root, long allocations, bool once, Call&& call) {
  Code code = Code::ok;
  std::string words;
  bool left = false;
  one_fails = once;
  if (root.rank() == 1) allocations_left = allocations;
  try {
    call();
    left = allocations_left > 0;
  } catch (const Error& error) {
    allocations_left = -1;
    code = error.code();
    words = error.message();
  } catch (const std::bad_alloc&) {
    code = Code::out_of_memory;
  }
  allocations_left = -1;
  EXPECT_TRUE(code == Code::ok || code == Code::out_of_memory || code == Code::aborted)
      << name(code) << " after " << allocations << " on rank " << root.rank() << ": " << words;
  return root.rank() == 1 && left;
}

}  // namespace gangway::test
