#include "gang/host/call/exchange.h"

#include "gang/host/call/describe.h"
#include "gang/host/call/pair.h"
#include "gang/host/call/reasons.h"
#include "gang/host/call/staging.h"

namespace gangway::host {
namespace {

bool all_arrived(const Call& call) {
  Op& op = call.op;
  for (; op.arrived < call.size(); ++op.arrived) {
    const int r = op.arrived;
    if (!needs(call, r)) continue;
    const Slot& slot = call.slot(r);
    if (slot.arrived.load(std::memory_order_acquire) < op.sequence + 1) return false;
    check_fingerprint(call.team, op, r, slot);
  }
  return true;
}

void plan(Call& call) {
  Op& op = call.op;
  op.planned = true;
  op.streams = out_count(op.c, call.rank(), call.size()) * op.item >= kStreamed;
  if (op.algorithm->plan != nullptr) op.algorithm->plan(call);
}

// Returns whether all members have begun this call. A rank that needs no input of a member waits for it all
// the same: otherwise the root of a broadcast, say, would end the call before a member can show that it made
// another one. An asynchronous call whose output is ready before its input is free does not wait.
bool everybody_came(Call& call) {
  Op& op = call.op;
  if (op.from == Peers::all || op.c.async_input) return true;  // all_arrived() or mark_done() compares
  for (; op.met < call.size(); ++op.met) {
    const Slot& slot = call.slot(op.met);
    if (op.met == call.rank()) continue;
    if (slot.arrived.load(std::memory_order_acquire) < op.sequence + 1) return false;
    check_fingerprint(call.team, op, op.met, slot);
  }
  return true;
}

// Every member has arrived and has published how many calls it had not ended. The slots of earlier calls may
// be reused. Recording that here saves a read of each member's line later.
void note_behind(const Call& call) {
  const Op& op = call.op;
  uint64_t behind = call.line(call.rank()).behind(op.sequence);
  for (int r = 0; r < call.size(); ++r)
    if (r != call.rank()) behind = std::max<uint64_t>(behind, call.slot(r).behind);
  if (behind <= op.sequence) op.lane->reusable = std::max(op.lane->reusable, op.sequence - behind);
}

void mark_done(Call& call) {
  Op& op = call.op;
  if (op.from == Peers::all || !op.c.async_input) {
    note_behind(call);
  } else {
    // Members whose input this call does not need may not have come. The rank that compares last finds a
    // difference.
    for (int r = 0; r < call.size(); ++r) {
      const Slot& slot = call.slot(r);
      if (r != call.rank() && slot.arrived.load(std::memory_order_acquire) == op.sequence + 1)
        check_fingerprint(call.team, op, r, slot);
    }
  }
  refuse_when_given_up(call.team, op);
  op.done = true;
  call.team.announce(call.line(call.rank()).drained, progress_of(op.sequence + 1, 0));
}

// Returns whether all members have ended the call in the slot, so that the slot may be reused.
bool slot_is_free(Call& call) {
  Lane& lane = *call.op.lane;
  const uint64_t sequence = call.op.sequence;
  if (sequence < lane.reusable + kSlots) return true;
  uint64_t least = sequence;
  for (int r = 0; r < call.size(); ++r)  // including this rank, whose peers may still read: see peers_done
    least = std::min(least, call.line(r).drained.load(std::memory_order_acquire) >> kRoundBits);
  lane.reusable = least;
  return sequence < lane.reusable + kSlots;
}

}  // namespace

bool publish(Call& call) {
  Op& op = call.op;
  if (op.lane->pair()) return publish_pair(call);
  if (!slot_is_free(call)) return false;
  ChannelLine& mine = call.line(call.rank());
  Slot& slot = call.slot(call.rank());
  describe(call, slot, kSlots);
  if (op.source == Source::staged) {
    take_chunks(call, mine.staging);
    plan_fill(call);
  }
  slot.behind = static_cast<uint32_t>(mine.behind(op.sequence));
  if (op.algorithm->publish != nullptr) op.algorithm->publish(call, slot);
  slot.fingerprint.store(op.fingerprint, std::memory_order_release);
  op.published = true;
  call.team.announce(slot.arrived, op.sequence + 1);
  // Takes the next slot's line out of the peers' caches before the next call needs it.
  __builtin_prefetch(&mine.slots[(op.sequence + 1) % kSlots], 1);
  return true;
}

bool step(Call& call) {
  Op& op = call.op;
  bool moved = false;
  if (!op.fill.over() && can_fill(call)) {
    fill(call);
    moved = true;
  }
  if (op.done) return moved;
  if (op.lane->pair()) return step_pair(call) || moved;
  if (!op.planned) {
    if (!all_arrived(call)) return moved;
    plan(call);
  }
  if (!op.drain.over() || !op.collect.over()) moved = op.algorithm->step(call) || moved;
  if (op.drain.over() && op.collect.over() && everybody_came(call)) mark_done(call);
  return moved;
}

bool peers_done(Call& call) {
  Op& op = call.op;
  if (op.lane->pair()) return pair_is_done(call);
  const uint64_t over = progress_of(op.sequence + 1, 0);
  // A call that folds into peers' outputs has ended when all members have folded, even if only some of them
  // get a result.
  const Peers by = op.in_place_on_peers ? Peers::all : op.to;
  for (; op.finished < call.size(); ++op.finished) {
    const int r = op.finished;
    if (r == call.rank() || by == Peers::none || (by == Peers::root && r != op.c.peer)) continue;
    const std::atomic<uint64_t>& drained = call.line(r).drained;
    if (drained.load(std::memory_order_acquire) >= over) continue;
    // A peer that made a different call never ends this one. A peer that has ended this call may have written
    // a later one into the slot. So a difference counts only while the peer has not ended the call.
    const Slot& slot = call.slot(r);
    if (slot.arrived.load(std::memory_order_acquire) == op.sequence + 1 &&
        slot.fingerprint.load(std::memory_order_acquire) != op.fingerprint &&
        drained.load(std::memory_order_acquire) < over)
      mismatch(call.team, op, r, slot);
    return false;
  }
  return true;
}

}  // namespace gangway::host
