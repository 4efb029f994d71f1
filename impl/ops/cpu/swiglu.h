// SwiGLU on the CPU.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void swiglu(Context& context, const SwigluArgs& args);
void swiglu_backward(Context& context, const SwigluBackwardArgs& args);

}  // namespace gangway::cpu
