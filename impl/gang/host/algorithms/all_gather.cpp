// all_gather, gather: each receiver copies the whole input of every rank to that rank's place in its output.
#include "gang/host/algorithms/moves.h"
#include "gang/host/algorithms/table.h"

namespace gangway::host {
namespace {

Piece piece_from(const Call& call, int peer) {
  const Part part = part_of(call.op, peer);
  return piece(call.op, 0, part.first, part.count);
}

void plan(Call& call) { plan_moves(call, piece_from); }
bool step(Call& call) { return step_moves(call, piece_from); }

}  // namespace

const Algorithm kAllGather{.only_moves = true, .plan = plan, .step = step};
const Algorithm kGather{
    .flow = Flow::to_root, .flow_of_inlined = Flow::to_root, .only_moves = true, .plan = plan, .step = step};

}  // namespace gangway::host
