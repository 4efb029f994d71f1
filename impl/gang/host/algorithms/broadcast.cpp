// broadcast: each rank copies the root's input.
#include "gang/host/algorithms/moves.h"
#include "gang/host/algorithms/table.h"

namespace gangway::host {
namespace {

Piece piece_from(const Call& call, int /*peer*/) { return piece(call.op, 0, 0, call.op.c.count); }

void plan(Call& call) { plan_moves(call, piece_from); }
bool step(Call& call) { return step_moves(call, piece_from); }

}  // namespace

const Algorithm kBroadcast{.flow = Flow::from_root,
                           .flow_of_inlined = Flow::from_root,
                           .only_moves = true,
                           .plan = plan,
                           .step = step};

}  // namespace gangway::host
