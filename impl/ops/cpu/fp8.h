// The operations of products in FP8 on the CPU (ops/fp8.h). Callers have checked the arguments.
//
// Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"
#include "ops/fp8.h"

namespace gangway::cpu {

void fp8_scale(Context& context, const Fp8ScaleArgs& args);
void fp8_codes(Context& context, const Fp8CodesArgs& args);
void fp8_gemm(Context& context, const Fp8GemmArgs& args);

}  // namespace gangway::cpu
