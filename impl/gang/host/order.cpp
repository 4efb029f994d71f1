// Calls in flight on one channel that share memory. A call's input is open to peers from the moment it is
// published, and its output may be written by them; so it is published only when every earlier call that it
// shares memory with has ended. Sends and receives are in order per pair alone, and there the steps keep it.
#include "gang/host/core.h"

namespace gangway::host {
namespace {

struct Range {
  uintptr_t first = 0, bytes = 0;
};

bool overlap(Range a, Range b) {
  return a.bytes != 0 && b.bytes != 0 && a.first < b.first + b.bytes && b.first < a.first + a.bytes;
}

Range input(const Op& op) { return {reinterpret_cast<uintptr_t>(op.c.in), op.in_bytes}; }

Range output(const Op& op, int rank, int size) {
  return {reinterpret_cast<uintptr_t>(op.c.out), out_count(op.c, rank, size) * op.item};
}

}  // namespace

const Op* Core::holder(const Op& op) const {
  if (op.published || op.c.op == CollectiveOp::send || op.c.op == CollectiveOp::recv) return nullptr;
  const Range in = input(op), out = output(op, rank_, size_);
  const Lane& lane = channels_[static_cast<size_t>(op.channel)];
  for (const Op* before = lane.head; before != nullptr && before != &op; before = before->next) {
    // What is done on this rank may still be read by peers, and written where they fold into its output.
    const Range written = output(*before, rank_, size_);
    const bool writing = !before->done || before->in_place_on_peers;
    if (overlap(input(*before), out) || (writing && (overlap(written, in) || overlap(written, out))))
      return before;
  }
  return nullptr;
}

}  // namespace gangway::host
