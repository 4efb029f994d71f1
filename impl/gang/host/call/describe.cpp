#include "gang/host/call/describe.h"

#include <cstring>

#include "gang/host/call/own_memory.h"
#include "gang/kernels/fold.h"

namespace gangway::host {

void describe(Call& call, Slot& slot, int slots) {
  Op& op = call.op;
  Arena& arena = call.team.arena();
  if (op.in_bytes == 0) {
    op.source = Source::none;
  } else if (op.in_bytes <= kInline) {
    op.source = Source::inlined;
    std::memcpy(slot.payload, op.c.in, op.in_bytes);
  } else {
    op.in_offset = arena.offset_of(op.c.in, op.in_bytes);
    if (op.in_bytes <= (op.in_offset != 0 ? kDirect : kSmall)) {
      op.source = Source::small;
      slot.in = call.team.block(op.lane->staging.small, static_cast<size_t>(slots) * kSmall) +
                op.sequence % static_cast<uint64_t>(slots) * kSmall;
      copy_bytes(arena.at(slot.in), op.c.in, op.in_bytes);
    } else if (op.in_offset != 0) {
      op.source = Source::direct;
      slot.in = op.in_offset;
    } else if (may_stay(call)) {
      op.source = Source::own;
      slot.in = reinterpret_cast<uint64_t>(op.c.in);
    } else {
      op.source = Source::staged;
    }
  }
  // A payload that is copied beside the flag counts as staged only if peers could not have read it in place.
  if (op.source == Source::small && op.in_offset == 0) call.traffic.bytes_staged += op.in_bytes;
  slot.first_stage = op.first_stage = op.lane->staging.next_stage;
  slot.op = op.c.op;
  slot.reduce = op.c.reduce;
  slot.source = op.source;
  slot.accumulate = op.c.accumulate;
  slot.dtype = static_cast<int32_t>(op.c.dtype);
  slot.peer = op.c.peer;
  slot.count = op.c.count;
}

}  // namespace gangway::host
