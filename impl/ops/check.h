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

// The most that a workspace of attention may take: about what the logits of a chunk of head_loss and their
// gradients take on a GPU at another time.
inline constexpr size_t kMostAttentionWorkspace = size_t{2} << 30;
// Returns the workspace of cuDNN's deterministic backward of attention: a matrix of scores of 16 bits, and
// sums of dq in f32. It is what cuDNN 9.19 takes on sm_80 and sm_90, and no less than on sm_100. 0: the
// backward is none that cuDNN takes, or the workspace would be larger than kMostAttentionWorkspace. GPUs and
// plans for them share this rule.
size_t cudnn_workspace_bytes(const AttentionBackwardArgs& args);

// Returns the temporary logits of one chunk of head_loss, [chunk, V]. The device of the temporaries decides
// how many tokens a chunk has: a CPU, or a GPU or a plan for one. All devices share this rule, so that a plan
// made on meta counts the memory that a run takes.
Tensor head_loss_logits(const HeadLossArgs& args, Stack& temporaries);
// Likewise where ranks have parts of a vocabulary, of which the largest has `most_ids`: all ranks have chunks
// of equally many tokens.
Tensor head_loss_logits(const HeadLossArgs& args, Stack& temporaries, int64_t most_ids);

}  // namespace gangway
