// Keeps a stack flat between two steps of a chain: gives back everything above a mark but one tensor.
// Thread rule: that of the stack.
#pragma once

#include "tensor/stack.h"

namespace gangway {

// Releases `stack` to `mark`, allocates room for `tensor` there and moves its contents (which may overlap, or
// lie elsewhere). Contiguous tensors only. Absent: releases and returns absent.
Tensor compact(Stack& stack, const Stack::Mark& mark, const Tensor& tensor, Stream& stream);

}  // namespace gangway
