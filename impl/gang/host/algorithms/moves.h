// Collectives that move bytes: a rank copies a piece of the input of each peer that it needs.
//
// Thread rule: under the core's mutex; nothing here waits.
#pragma once

#include "gang/host/algorithms/rounds.h"

namespace gangway::host {

// The bytes that `peer` has for this rank: how many, where they begin in its input, and where in this rank's
// output.
struct Piece {
  size_t bytes = 0, in_first = 0, out_first = 0;
};
using PieceFrom = Piece (*)(const Call& call, int peer);
Piece piece(const Op& op, size_t in_first, size_t out_first, size_t count);  // in elements
void plan_moves(Call& call, PieceFrom piece_from);
bool step_moves(Call& call, PieceFrom piece_from);

}  // namespace gangway::host
