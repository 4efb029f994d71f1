// Visits this rank's part of a tensor in pieces of limited size, in the order of a file that has the whole
// tensor, row-major.
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
// part, which is `box` of a tensor of shape `shape`, begin at `byte` of the tensor. An element has `item`
// bytes in the file.
template <typename Use>
void for_pieces(const Shape& shape, const Box& box, size_t item, Use&& use) {
  const auto most = static_cast<int64_t>(kPieceBytes / item);
  for_each_run(shape, box, [&](int64_t whole, int64_t local, int64_t count) {
    for (int64_t done = 0; done < count; done += most) {
      poll_interrupt_throttled();
      use(local + done, std::min(most, count - done), static_cast<uint64_t>(whole + done) * item);
    }
  });
}
// The same for this rank's shard of a parameter.
template <typename Use>
void for_pieces(const Parameter& parameter, size_t item, Use&& use) {
  if (!parameter.shard || parameter.shard.count() == 0) return;
  for_pieces(parameter.shape, parameter.box(), item, use);
}

}  // namespace gangway
