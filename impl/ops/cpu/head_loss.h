// The model head and cross-entropy on the CPU, in chunks of tokens. Callers have checked the arguments
// (ops/check.h).
//
// Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void head_loss(Context& context, const HeadLossArgs& args, Stack& temporaries);

}  // namespace gangway::cpu
