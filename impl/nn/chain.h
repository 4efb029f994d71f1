// One module after the other, one tensor from each to the next; memory stays flat: without a frame each
// output is moved down over the temporaries that made it, in backward Frame::compact does that. Thread rule:
// that of the modules.
#pragma once

#include "nn/module.h"

namespace gangway {

// What Module::check_forward of children [first, last) says, one after the other.
Specs chain_check(Context& ctx, Module& parent, size_t first, size_t last, Specs x);
// Runs children [first, last) of `parent`, each on one tensor; x lies anywhere.
Tensor chain_forward(Context& ctx, Module& parent, size_t first, size_t last, Tensor x, Frame* frame);
// The same backwards, settling to `mark` after each; dy may lie above the mark.
Tensor chain_backward(Context& ctx, Module& parent, size_t first, size_t last, Tensor dy, Frame& frame,
                      const Stack::Mark& mark);

}  // namespace gangway
