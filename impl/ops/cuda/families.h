// The operations, with one file for each family: norm.cu, rope.cu, ... The caller (cuda_ops.cpp) has checked
// the shapes (ops/check.h) and made the stream's device current.
//
// Thread rule: an Ops' (ops/ops.h).
#pragma once

#include "device/cuda/cuda_device.h"
#include "ops/ops.h"

namespace gangway::cuda {

void rmsnorm(const RmsNormArgs& args, Stream& stream);
void rmsnorm_backward(const RmsNormBackwardArgs& args, Stream& stream);
void row_dot(const RowDotArgs& args, Stream& stream);
void layernorm(const LayerNormArgs& args, Stream& stream);
void layernorm_backward(const LayerNormBackwardArgs& args, Stream& stream);
void rope(const RopeArgs& args, Stream& stream);
void swiglu(const SwigluArgs& args, Stream& stream);
void swiglu_backward(const SwigluBackwardArgs& args, Stream& stream);
void activation(const ActivationArgs& args, Stream& stream);
void activation_backward(const ActivationBackwardArgs& args, Stream& stream);
void dropout(const DropoutArgs& args, Stream& stream);
void attention(const AttentionArgs& args, Stream& stream);
void attention_merge(const AttentionMergeArgs& args, Stream& stream);
void attention_backward(const AttentionBackwardArgs& args, Stream& stream);
void embedding(const EmbeddingArgs& args, Stream& stream);
void embedding_backward(const EmbeddingBackwardArgs& args, Stream& stream);
void loss_part(const LossPartArgs& args, Stream& stream);
void divide_by_norm(const DivideByNormArgs& args, Stream& stream);
void checksum(const ChecksumArgs& args, Stream& stream);
void loss_join(const LossJoinArgs& args, Stream& stream);
#define GANGWAY_OPERATION(name, Args) void name(const Args& args, Stream& stream);
GANGWAY_OPTIMIZER_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
void cast(const Tensor& x, const Tensor& y, Stream& stream);
void fill(const Tensor& y, double value, Stream& stream);
void add(const Tensor& x, double factor, const Tensor& y, Stream& stream);
void scale(const Tensor& y, double factor, Stream& stream);
void column_sum(const Tensor& x, const Tensor& y, Stream& stream);
void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream);
void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation, Stream& stream);
void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream);

// Adds the column sums of `partials` [rows, columns] to y, row after row. For partial sums of several blocks.
void add_partials(const void* partials, DType dtype, int64_t rows, int64_t columns, void* y, Stream& stream);

}  // namespace gangway::cuda
