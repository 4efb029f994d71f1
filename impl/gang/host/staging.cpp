// A rank's staging area: whose turn it is, and putting an input there chunk by chunk.
#include <algorithm>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/fold.h"

namespace gangway::host {

// Are the calls before this one through with filling? One that needs no peer's input (a broadcast's root, a
// send) is passed by later ones while it still waits for the staging area.
bool Core::filled_before(const Lane& lane, const Op& op) {
  for (const Op* before = lane.head; before != nullptr && before != &op; before = before->next)
    if (before->filled < before->fill_rounds) return false;
  return true;
}

bool Core::own_staging(Lane& lane, const Op& op) {
  if (lane.staged_until > op.sequence) return true;  // taken by this very call
  if (!filled_before(lane, op)) return false;
  if (lane.staged_until != 0)
    for (int r = 0; r < size_; ++r)
      if (r != rank_ &&
          line(op.channel, r).drained.load(std::memory_order_acquire) < progress_of(lane.staged_until, 0))
        return false;
  lane.staged_until = op.sequence + 1;
  return true;
}

bool Core::can_fill(Lane& lane, Op& op) {
  if (!own_staging(lane, op)) return false;
  if (op.filled < kStages) return true;
  const Peers by = consumers(op, rank_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || (by == Peers::root && r != op.c.peer)) continue;
    const Slot& slot = slot_of(op, r);
    if (slot.arrived.load(std::memory_order_acquire) == op.sequence + 1) check_fingerprint(op, r, slot);
    if (line(op.channel, r).drained.load(std::memory_order_acquire) <
        progress_of(op.sequence, op.filled - kStages + 1))
      return false;
  }
  return true;
}

void Core::fill(Lane& lane, Op& op) {
  unsigned char* const stage = arena_.at(lane.staging) + op.filled % kStages * kChunk;
  const auto* const in = static_cast<const unsigned char*>(op.c.in);
  const size_t first = op.filled * op.chunk;
  const auto put = [&](unsigned char* to, const unsigned char* from, size_t bytes) {
    copy_bytes(to, from, bytes);
    traffic_.bytes_staged += bytes;
  };
  const size_t n = std::min(op.chunk, op.in_bytes - std::min(op.in_bytes, first));
  if (splits(op.c.op)) {
    for (int j = 0; j < size_; ++j) {
      const Part part = part_of(op, j);
      const size_t bytes = part.count * op.item;
      if (j == rank_ || first >= bytes) continue;
      put(stage + static_cast<size_t>(j) * op.chunk, in + part.first * op.item + first,
          std::min(op.chunk, bytes - first));
    }
  } else if (reduces(op.c.op)) {  // its own part of the chunk a rank folds from the input itself
    const Part own = even_part(n / op.item, op.item, rank_, size_);
    const size_t before = own.first * op.item, after = before + own.count * op.item;
    put(stage, in + first, before);
    put(stage + after, in + first + after, n - after);
  } else {
    put(stage, in + first, n);
  }
  ++op.filled;
  announce(line(op.channel, rank_).filled, progress_of(op.sequence, op.filled));
}

}  // namespace gangway::host
