// The operations of ops.h on the CPU. Each is in the .cpp of its family. Callers have checked the arguments
// (ops/check.h).
//
// Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

#define GANGWAY_OPERATION(name, Args) void name(Context& context, const Args& args);
GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION

// Returns whether oneDNN computes products of this dtype here, except tiny ones.
bool gemm_uses_onednn(Context& context, DType dtype);

}  // namespace gangway::cpu
