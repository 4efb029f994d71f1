#include "gang/host/algorithms/rounds.h"

#include "gang/kernels/fold.h"

namespace gangway::host {

const unsigned char* source_of(const Call& call, int peer, size_t in_first) {
  const Op& op = call.op;
  const Slot& slot = call.slot(peer);
  const size_t first = op.drain.done * op.drain_chunk;
  switch (slot.source) {
    case Source::none:
    case Source::own: return nullptr;  // of another address space
    case Source::inlined: return slot.payload + in_first + first;
    case Source::small:
    case Source::direct: return call.team.arena().at(slot.in) + in_first + first;
    case Source::staged: {
      const uint64_t chunks = call.line(peer).staging.load(std::memory_order_relaxed);
      const size_t own_part =
          op.algorithm->cut == Cut::by_reader ? static_cast<size_t>(call.rank()) * op.drain_chunk : 0;
      return call.team.arena().at(chunks) + stage_at(slot.first_stage, op.drain.done) + own_part;
    }
  }
  return nullptr;
}

bool chunk_is_filled(const Call& call, int peer, size_t bytes) {
  const Op& op = call.op;
  if (call.slot(peer).source != Source::staged || bytes == 0) return true;
  if (op.drain.done != 0 && op.drain.done >= rounds_of(bytes, op.drain_chunk)) return true;
  return call.line(peer).filled.load(std::memory_order_acquire) >=
         progress_of(op.sequence, op.drain.done + 1);
}

void end_drain_round(Call& call) {
  Op& op = call.op;
  if (op.streams) end_stream();
  ++op.drain.done;
  if (!op.drain.over())
    call.team.announce(call.line(call.rank()).drained, progress_of(op.sequence, op.drain.done));
}

}  // namespace gangway::host
