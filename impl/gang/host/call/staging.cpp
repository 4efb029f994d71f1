#include "gang/host/call/staging.h"

#include "gang/host/call/reasons.h"
#include "gang/kernels/fold.h"

namespace gangway::host {
namespace {

// Returns whether the earlier calls have filled all their chunks. A call that needs no peer's input (a
// broadcast's root, a send) may be done before it has got space in the rings for its chunks.
bool filled_before(const Op& op) {
  for (const Op* before = op.lane->head; before != nullptr && before != &op; before = before->next)
    if (!before->fill.over()) return false;
  return true;
}

// Returns whether all readers have reached `progress`. The readers are the peer of a pair, or members of the
// channel.
bool all_read(const Call& call, Peers readers, uint64_t progress) {
  if (call.op.lane->pair()) return call.pair_line().drained.load(std::memory_order_acquire) >= progress;
  for (int r = 0; r < call.size(); ++r) {
    if (r == call.rank() || (readers == Peers::root && r != call.op.c.peer)) continue;
    if (call.line(r).drained.load(std::memory_order_acquire) < progress) return false;
  }
  return true;
}

// Looks for readers that made a different call: they never read this call's chunks, and it would wait
// forever.
void check_readers(const Call& call) {
  const Op& op = call.op;
  if (op.lane->pair()) return;  // the receiver compares the two calls
  for (int r = 0; r < call.size(); ++r) {
    if (r == call.rank() || (op.to == Peers::root && r != op.c.peer)) continue;
    const Slot& slot = call.slot(r);
    if (slot.arrived.load(std::memory_order_acquire) == op.sequence + 1)
      check_fingerprint(call.team, op, r, slot);
  }
}

}  // namespace

void take_chunks(Call& call, std::atomic<uint64_t>& place) {
  const size_t chunks = call.op.lane->pair() ? kStages : 2 * kStages;
  place.store(call.team.block(call.op.lane->staging.chunks, chunks * kChunk), std::memory_order_release);
}

void plan_fill(Call& call) {
  Op& op = call.op;
  op.chunk = kChunk;
  size_t longest = op.in_bytes;
  if (op.algorithm->cut == Cut::by_reader) {
    op.chunk = kChunk / static_cast<size_t>(call.size()) / kLine * kLine;
    longest = 0;
    for (int j = 0; j < call.size(); ++j)
      if (j != call.rank()) longest = std::max(longest, part_of(op, j).count * op.item);
  }
  op.fill.all = rounds_of(longest, op.chunk);
  op.lane->staging.next_stage += op.fill.all;
}

bool own_chunks(Call& call) {
  uint64_t& taken_until = call.op.lane->staging.taken_until;
  if (taken_until > call.op.sequence) return true;  // this call already uses the rings
  if (!filled_before(call.op)) return false;
  if (taken_until != 0 && !all_read(call, Peers::all, progress_of(taken_until, 0))) return false;
  taken_until = call.op.sequence + 1;
  return true;
}

bool can_fill(Call& call) {
  const Op& op = call.op;
  if (!own_chunks(call)) return false;
  if (op.fill.done < kStages) return true;
  check_readers(call);
  return all_read(call, op.to, progress_of(op.sequence, op.fill.done - kStages + 1));
}

void fill(Call& call) {
  Op& op = call.op;
  unsigned char* const stage =
      call.team.arena().at(op.lane->staging.chunks) + stage_at(op.first_stage, op.fill.done);
  const auto* const in = static_cast<const unsigned char*>(op.c.in);
  const size_t first = op.fill.done * op.chunk;
  const auto put = [&](unsigned char* to, const unsigned char* from, size_t bytes) {
    copy_bytes(to, from, bytes);
    call.traffic.bytes_staged += bytes;
  };
  const size_t n = std::min(op.chunk, op.in_bytes - std::min(op.in_bytes, first));
  switch (op.algorithm->cut) {
    case Cut::whole: put(stage, in + first, n); break;
    case Cut::by_reader:
      for (int j = 0; j < call.size(); ++j) {
        const Part part = part_of(op, j);
        const size_t bytes = part.count * op.item;
        if (j == call.rank() || first >= bytes) continue;
        put(stage + static_cast<size_t>(j) * op.chunk, in + part.first * op.item + first,
            std::min(op.chunk, bytes - first));
      }
      break;
    case Cut::but_own: {
      const Part own = even_part(n / op.item, op.item, call.rank(), call.size());
      const size_t before = own.first * op.item, after = before + own.count * op.item;
      put(stage, in + first, before);
      put(stage + after, in + first + after, n - after);
      break;
    }
  }
  ++op.fill.done;
  call.team.announce(op.lane->pair() ? call.pair_line().filled : call.line(call.rank()).filled,
                     progress_of(op.sequence, op.fill.done));
}

}  // namespace gangway::host
