// Frees everything above a mark of a stack except one tensor, so that a stack does not grow with the length
// of a chain.
//
// Thread rule: that of the stack.
#pragma once

#include "tensor/stack.h"

namespace gangway {

// Releases `stack` to `mark`, allocates memory for `tensor` there, moves its contents and returns the new
// tensor. Source and target may overlap, and the source may lie outside the stack. `tensor` is contiguous; if
// it is absent, the result is absent.
Tensor compact(Stack& stack, const Stack::Mark& mark, const Tensor& tensor, Stream& stream);

}  // namespace gangway
