// The operations of ops.h on the CPU, each in the .cpp of its family.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

#define GANGWAY_OPERATION(name, Args) void name(Context& context, const Args& args);
GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION

// Whether oneDNN multiplies products of this dtype here, but for tiny ones.
bool gemm_by_vendor(Context& context, DType dtype);

}  // namespace gangway::cpu
