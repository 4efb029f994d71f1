// Add + RMSNorm on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void rmsnorm(Context& context, const RmsNormArgs& args);
void rmsnorm_backward(Context& context, const RmsNormBackwardArgs& args);

}  // namespace gangway::cpu
