// Computes attention from its plain description (ops/cuda/cudnn/attention_graph.h), score by score in f64. It
// reads only the dims, strides and addresses that cuDNN gets as well.
//
// Thread rule: pure functions.
#pragma once

#include "ops/cuda/cudnn/attention_graph.h"

namespace gpu_emulation {

// The pointers are to memory that this thread may read and write.
void interpret(const gangway::cuda::AttentionGraph& graph, const gangway::cuda::AttentionPointers& pointers);

// Returns the number of elements from the first one of an operand to its last one, gaps included.
int64_t extent(const gangway::cuda::OperandLayout& layout);

}  // namespace gpu_emulation
