// Attention as its plain description says it (ops/cuda/cudnn/attention_graph.h), score by score in f64: the definition in cuDNN's
// terms, which knows dims, strides and addresses alone.
// Thread rule: pure function.
#pragma once

#include "ops/cuda/cudnn/attention_graph.h"

namespace gpu_emulation {

// Addresses of memory that this thread may read and write.
void interpret(const gangway::cuda::AttentionGraph& graph, const gangway::cuda::AttentionPointers& pointers);

// The element behind the last one of an operand, from its first.
int64_t extent(const gangway::cuda::OperandLayout& layout);

}  // namespace gpu_emulation
