// Optimizer steps over flat shards on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void adamw(Context& context, const AdamWArgs& args);
void sgd(Context& context, const SgdArgs& args);

}  // namespace gangway::cpu
