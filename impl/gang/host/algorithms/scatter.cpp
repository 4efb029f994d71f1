// scatter: each rank copies its part of the root's input.
#include "gang/host/algorithms/moves.h"
#include "gang/host/algorithms/table.h"

namespace gangway::host {
namespace {

Piece piece_from(const Call& call, int /*peer*/) {
  const Part part = part_of(call.op, call.rank());
  return piece(call.op, part.first, 0, part.count);
}

void plan(Call& call) { plan_moves(call, piece_from); }
bool step(Call& call) { return step_moves(call, piece_from); }

}  // namespace

const Algorithm kScatter{.flow = Flow::from_root,
                         .flow_of_inlined = Flow::from_root,
                         .cut = Cut::by_reader,
                         .only_moves = true,
                         .plan = plan,
                         .step = step};

}  // namespace gangway::host
