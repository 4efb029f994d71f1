// Visits this rank's part of a parameter in pieces of limited size, in the order of a file that has the whole
// parameter, row-major.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/interrupt.h"
#include "nn/parameter.h"

namespace gangway {

constexpr size_t kPieceBytes = 1 << 20;

// Calls use(at, count, byte) for each piece, of at most kPieceBytes: elements [at, at + count) of this rank's
// shard begin at `byte` of the whole tensor. An element has `item` bytes in the file.
template <typename Use>
void for_pieces(const Parameter& parameter, size_t item, Use&& use) {
  if (!parameter.shard || parameter.shard.count() == 0) return;
  const auto most = static_cast<int64_t>(kPieceBytes / item);
  for_each_run(parameter.shape, parameter.box(), [&](int64_t whole, int64_t local, int64_t count) {
    for (int64_t done = 0; done < count; done += most) {
      poll_interrupt_at_times();
      use(local + done, std::min(most, count - done), static_cast<uint64_t>(whole + done) * item);
    }
  });
}

}  // namespace gangway
