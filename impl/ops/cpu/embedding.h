// Embedding on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void embedding(Context& context, const EmbeddingArgs& args);
void embedding_backward(Context& context, const EmbeddingBackwardArgs& args);

}  // namespace gangway::cpu
