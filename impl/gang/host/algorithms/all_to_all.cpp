// all_to_all: each rank copies its part of every input. With counts per rank only the sender knows where its
// parts begin, so it publishes a table of their offsets with the call.
#include "gang/host/algorithms/moves.h"
#include "gang/host/algorithms/table.h"
#include "gang/host/call/reasons.h"

namespace gangway::host {
namespace {

// The table of a peer: size + 1 offsets in elements. Null: it has none.
const uint64_t* table_of(const Call& call, int peer) {
  const uint64_t table = call.slot(peer).table;
  return table == 0 ? nullptr : call.team.arena().at<uint64_t>(table);
}

void publish(Call& call, Slot& slot) {
  slot.table = 0;
  const Op& op = call.op;
  if (op.counts.empty()) return;
  const size_t words = static_cast<size_t>(call.size()) + 1;
  slot.table = call.team.block(op.lane->staging.tables, kSlots * words * sizeof(uint64_t)) +
               op.sequence % kSlots * words * sizeof(uint64_t);
  auto* const table = call.team.arena().at<uint64_t>(slot.table);
  table[0] = 0;
  for (size_t j = 0; j + 1 < words; ++j) table[j + 1] = table[j] + op.counts[j];
}

Piece piece_from(const Call& call, int peer) {
  const Part part = received_part(call.op, peer, call.size());
  const bool looked_up = !call.op.counts.empty() && peer != call.rank();
  const size_t in_first = looked_up ? table_of(call, peer)[call.rank()] : part_of(call.op, call.rank()).first;
  return piece(call.op, in_first, part.first, part.count);
}

void plan(Call& call) {
  const Op& op = call.op;
  for (int r = 0; r < call.size() && !op.counts.empty(); ++r) {
    if (r == call.rank()) continue;
    const uint64_t* const table = table_of(call, r);
    const size_t count = received_part(op, r, call.size()).count;
    if (table == nullptr || table[call.rank() + 1] - table[call.rank()] != count)
      mismatch(call.team, op, r, call.slot(r));
  }
  plan_moves(call, piece_from);
}

bool step(Call& call) { return step_moves(call, piece_from); }

}  // namespace

const Algorithm kAllToAll{
    .cut = Cut::by_reader, .only_moves = true, .publish = publish, .plan = plan, .step = step};

}  // namespace gangway::host
