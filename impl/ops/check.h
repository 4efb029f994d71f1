// Checks of the shapes and dtypes of every operation's arguments. All implementations of Ops share them, so
// that a run on the meta device refuses what a real run would. A violation is the library's own mistake:
// Error{internal} with the argument's name.
//
// Thread rule: pure functions.
#pragma once

#include "ops/ops.h"

namespace gangway {

#define GANGWAY_OPERATION(name, Args) void check(const Args& args);
GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
void check(const HeadLossArgs& args);
void check_cast(const Tensor& x, const Tensor& y);
void check_fill(const Tensor& y);
void check_add(const Tensor& x, const Tensor& y);
void check_scale(const Tensor& y);
void check_column_sum(const Tensor& x, const Tensor& y);
void check_norm_power(const Tensor& x, double p, const Tensor& out);
void check_fill_normal(const Tensor& y);
void check_id_range(const Tensor& ids, const Tensor& out);

// Returns f64 for f64, otherwise f32: the dtype of statistics, weight gradients and accumulators that belong
// to activations of `dtype`.
DType accumulator(DType dtype);

// Returns how many tokens are in one chunk of head_loss, on a CPU or on a GPU. All devices share this rule and
// head_loss_logits, so that a plan made on meta counts the memory that a run takes.
int64_t head_loss_chunk(const HeadLossArgs& args, bool on_gpu);
// Returns the chunk's temporary logits, [chunk, V]. The device of the temporaries decides about the chunk.
Tensor head_loss_logits(const HeadLossArgs& args, Stack& temporaries);

}  // namespace gangway
