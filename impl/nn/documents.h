// Where the tokens of a row stand: their positions, and which keys their queries see when a row holds several
// documents or a layer has a window. Whoever runs a model puts them into the context; modules ask.
//
// Thread rule: that of the model.
#pragma once

#include "nn/module.h"

namespace gangway {

// The positions of this rank's tokens, for rotary angles and for learned positions.
struct Positions {
  int64_t count = 0;  // every position is below it
  Tensor rows;        // i32 [S], equal in all rows, or [B, S]; absent: 0, 1, 2, ... in each row
};
// Returns the positions of the context's rows, each of which has `tokens` tokens on this rank.
Positions positions_of(Context& ctx, int64_t tokens);

}  // namespace gangway
