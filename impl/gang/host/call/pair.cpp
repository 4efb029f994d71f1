#include "gang/host/call/pair.h"

#include "gang/host/call/describe.h"
#include "gang/host/call/own_memory.h"
#include "gang/host/call/reasons.h"
#include "gang/host/call/staging.h"
#include "gang/kernels/fold.h"

namespace gangway::host {
namespace {

bool publish_receive(Call& call) {
  call.op.published = true;
  call.team.announce(call.pair_line().wanted, call.op.sequence + 1);
  return true;
}

bool publish_send(Call& call) {
  Op& op = call.op;
  PairLine& pair = call.pair_line();
  uint64_t& reusable = op.lane->reusable;
  if (op.sequence >= reusable + kPairSlots) {
    reusable = pair.drained.load(std::memory_order_acquire) >> kRoundBits;
    if (op.sequence >= reusable + kPairSlots) return false;
  }
  Slot& slot = pair.slots[op.sequence % kPairSlots];
  describe(call, slot, kPairSlots);
  if (op.source == Source::staged) {
    take_chunks(call, pair.staging);
    plan_fill(call);
  }
  slot.fingerprint.store(op.fingerprint, std::memory_order_relaxed);
  op.published = true;
  call.team.announce(slot.arrived, op.sequence + 1);
  __builtin_prefetch(&pair.slots[(op.sequence + 1) % kPairSlots], 1);
  return true;
}

void plan_receive(const Call& call, const Slot& slot) {
  Op& op = call.op;
  // Reading the second line of the slot costs another access to the sender's cache, so the fingerprint in the
  // first line is compared first.
  if (slot.fingerprint.load(std::memory_order_relaxed) != op.fingerprint &&
      (slot.count != op.c.count || slot.dtype != static_cast<int32_t>(op.c.dtype)))
    mismatch(call.team, op, op.c.peer, slot);
  op.planned = true;
  op.drain_chunk = slot.source == Source::staged ? kChunk : kMove;
  op.drain.all = std::max<uint64_t>(1, rounds_of(op.c.count * op.item, op.drain_chunk));
}

// Returns false if the sender's process has ended, so that its memory is gone.
bool receive_round(Call& call, const Slot& slot) {
  const Op& op = call.op;
  const size_t first = op.drain.done * op.drain_chunk;
  const size_t n = std::min(op.drain_chunk, op.c.count * op.item - first);
  const unsigned char* from = nullptr;
  switch (slot.source) {
    case Source::none: return true;
    case Source::own: break;
    case Source::inlined: from = slot.payload; break;
    case Source::small:
    case Source::direct: from = call.team.arena().at(slot.in) + first; break;
    case Source::staged:
      from = call.team.arena().at(call.pair_line().staging.load(std::memory_order_relaxed)) +
             stage_at(slot.first_stage, op.drain.done);
      break;
  }
  unsigned char* const to = static_cast<unsigned char*>(op.c.out) + first;
  if (slot.source == Source::own) {
    if (!read_own(call, op.c.peer, slot.in + first, to, n)) return false;
  } else {
    copy_bytes(to, from, n);
  }
  call.traffic.bytes_moved += n;
  return true;
}

bool step_receive(Call& call) {
  Op& op = call.op;
  PairLine& pair = call.pair_line();
  const Slot& slot = pair.slots[op.sequence % kPairSlots];
  if (!op.planned) {
    if (slot.arrived.load(std::memory_order_acquire) < op.sequence + 1) return false;
    plan_receive(call, slot);
  }
  if (!op.drain.over()) {
    if (slot.source == Source::staged &&
        pair.filled.load(std::memory_order_acquire) < progress_of(op.sequence, op.drain.done + 1))
      return false;
    if (!receive_round(call, slot)) return false;
    if (++op.drain.done < op.drain.all) {
      // Who fills chunks waits for these; a sender whose input is read in place would be woken for nothing.
      if (slot.source == Source::staged)
        call.team.announce(pair.drained, progress_of(op.sequence, op.drain.done));
      return true;
    }
  }
  refuse_when_given_up(call.team, op);
  op.done = true;
  call.team.announce(pair.drained, progress_of(op.sequence + 1, 0));
  return true;
}

}  // namespace

bool publish_pair(Call& call) { return call.op.lane->sending ? publish_send(call) : publish_receive(call); }

// A sender has no step of its own, so its call is done at once. exchange.h fills its chunks afterwards, and
// pair_is_done() tells when the receiver has read an input in place.
bool step_pair(Call& call) {
  if (!call.op.lane->sending) return step_receive(call);
  call.op.done = true;
  return false;
}

bool pair_is_done(const Call& call) {
  return !call.op.lane->sending ||
         call.pair_line().drained.load(std::memory_order_acquire) >= progress_of(call.op.sequence + 1, 0);
}

}  // namespace gangway::host
