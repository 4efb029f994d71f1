// Head and cross-entropy in token chunks on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void head_loss(Context& context, const HeadLossArgs& args, Stack& temporaries);

}  // namespace gangway::cpu
