// Whole sequences of a caller, and this rank's parts of them: with context parallelism (cp over 1) the ranks
// of cp are given equal rows, and each computes with its part of dim 1, the sequence. Tensors of one dim have
// no sequence and stay whole.
//
// Thread rule: one thread at a time. whole_value and sum_of_parts are collective over the gang of cp.
#pragma once

#include <span>

#include "parallel/model/model.h"

namespace gangway {

// Returns the tokens of a part. `name` of the tensors, such as "batch.inputs", is for messages.
// INVALID_ARGUMENT: the first value has no dim 1, sequences have different lengths, are too long for a
// decoder, or cannot be split.
int64_t part_tokens(Model& model, std::span<const Spec> values, const char* name);
// Returns whether a part of such a shape, made from parts of `tokens` tokens, is a part of sequences.
bool is_part(const Shape& shape, int64_t tokens);
// Returns the shape of a part of a value of shape `whole`.
Shape part_shape(Model& model, const Shape& whole);
// Writes this rank's part of `whole` to `part`.
void take_part(Model& model, const Tensor& whole, const Tensor& part, Stream& stream);

// Returns the whole of every rank's `part`, in memory of its own.
Tensor whole_value(Model& model, const Tensor& part, Stream& stream);
// Returns the sum of every rank's floating `value`, in memory of its own.
Tensor sum_of_parts(Model& model, const Tensor& value, Stream& stream);

}  // namespace gangway
