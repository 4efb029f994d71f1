// send and recv: one sender, one receiver, their own sequence.
#include <algorithm>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/fold.h"

namespace gangway::host {

bool Core::step_send(Lane& lane, Op& op) {
  op.done = true;
  if (op.filled == op.fill_rounds) return false;
  PairLine& pair = board_->pair(lane.channel, rank_, lane.peer);
  const uint64_t drained = pair.drained.load(std::memory_order_acquire);
  // A stage is free when the receiver is through with what was in it, in this call or the last one.
  if (lane.staged_until <= op.sequence) {
    if (!filled_before(lane, op)) return false;
    if (lane.staged_until != 0 && drained < progress_of(lane.staged_until, 0)) return false;
    lane.staged_until = op.sequence + 1;
  }
  if (op.filled >= kStages && drained < progress_of(op.sequence, op.filled - kStages + 1)) return false;
  const size_t first = op.filled * op.chunk;
  const size_t n = std::min(op.chunk, op.in_bytes - first);
  copy_bytes(arena_.at(lane.staging) + op.filled % kStages * kChunk,
             static_cast<const unsigned char*>(op.c.in) + first, n);
  traffic_.bytes_staged += n;
  ++op.filled;
  announce(pair.filled, progress_of(op.sequence, op.filled));
  return true;
}

bool Core::step_receive(Op& op) {
  if (op.done) return false;
  PairLine& pair = board_->pair(op.channel, op.c.peer, rank_);
  const Slot& slot = pair.slots[op.sequence % kPairSlots];
  if (!op.planned) {
    if (slot.arrived.load(std::memory_order_acquire) < op.sequence + 1) return false;
    // What stands in the slot's second line is a look more into the sender's cache.
    if (slot.fingerprint.load(std::memory_order_relaxed) != op.fingerprint &&
        (slot.count != op.c.count || slot.dtype != static_cast<int32_t>(op.c.dtype)))
      mismatch(op, op.c.peer, slot);
    op.planned = true;
    const size_t bytes = op.c.count * op.item;
    op.drain_chunk = slot.source == Source::staged ? kChunk : kMove;
    op.drain_rounds = std::max<uint64_t>(1, (bytes + op.drain_chunk - 1) / op.drain_chunk);
  }
  if (op.drained < op.drain_rounds) {
    if (slot.source == Source::staged &&
        pair.filled.load(std::memory_order_acquire) < progress_of(op.sequence, op.drained + 1))
      return false;
    receive_round(op, slot);
    if (++op.drained < op.drain_rounds) {
      announce(pair.drained, progress_of(op.sequence, op.drained));
      return true;
    }
  }
  refuse_when_given_up(op);
  op.done = true;
  announce(pair.drained, progress_of(op.sequence + 1, 0));
  return true;
}

void Core::receive_round(Op& op, const Slot& slot) {
  const size_t first = op.drained * op.drain_chunk;
  const size_t n = std::min(op.drain_chunk, op.c.count * op.item - first);
  const unsigned char* from = nullptr;
  switch (slot.source) {
    case Source::none: return;
    case Source::inlined: from = slot.payload; break;
    case Source::small:
    case Source::direct: from = arena_.at(slot.in) + first; break;
    case Source::staged: {
      const uint64_t staging =
          board_->pair(op.channel, op.c.peer, rank_).staging.load(std::memory_order_relaxed);
      from = arena_.at(staging) + op.drained % kStages * kChunk;
      break;
    }
  }
  copy_bytes(static_cast<unsigned char*>(op.c.out) + first, from, n);
  traffic_.bytes_moved += n;
}

}  // namespace gangway::host
