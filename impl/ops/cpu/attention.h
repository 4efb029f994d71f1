// Attention on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void attention(Context& context, const AttentionArgs& args);
void attention_merge(Context& context, const AttentionMergeArgs& args);
void attention_backward(Context& context, const AttentionBackwardArgs& args);

}  // namespace gangway::cpu
