// Rotary embedding on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void rope(Context& context, const RopeArgs& args);

}  // namespace gangway::cpu
