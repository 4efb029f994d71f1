// reduce_scatter: each rank folds its part of every input into its output.
#include "gang/host/algorithms/folding.h"
#include "gang/host/algorithms/moves.h"
#include "gang/host/algorithms/table.h"

namespace gangway::host {
namespace {

Piece piece_from(const Call& call, int /*peer*/) {
  const Part part = part_of(call.op, call.rank());
  return piece(call.op, part.first, 0, part.count);
}

void fold_round(Call& call, const Piece& part) {
  const Op& op = call.op;
  const size_t first = op.drain.done * op.drain_chunk;
  if (first >= part.bytes) return;
  const size_t n = std::min(op.drain_chunk, part.bytes - first);
  const auto* const own = static_cast<const unsigned char*>(op.c.in) + part.in_first;
  Inputs inputs;
  for (int r = 0; r < call.size(); ++r)
    inputs[static_cast<size_t>(r)] = r == call.rank() ? own + first : source_of(call, r, part.in_first);
  call.traffic.bytes_moved += n * static_cast<size_t>(call.size() - 1);
  fold_to(fold_of(op, inputs, call.size()), n / op.item, static_cast<unsigned char*>(op.c.out) + first,
          own == op.c.out, {op.c.accumulate, op.streams});
}

void plan(Call& call) { plan_moves(call, piece_from); }

bool step(Call& call) {
  const Piece part = piece_from(call, call.rank());
  for (int r = 0; r < call.size(); ++r)
    if (r != call.rank() && !chunk_is_filled(call, r, part.bytes)) return false;
  fold_round(call, part);
  end_drain_round(call);
  return true;
}

}  // namespace

const Algorithm kReduceScatter{.cut = Cut::by_reader, .plan = plan, .step = step};

}  // namespace gangway::host
