// Matrix products on the CPU.
//
// f32 by oneDNN, bf16 by oneDNN where the processor has AVX-512 and else through f32 panels, f64 and the
// portable instruction set by our own blocked product. The result is split over the pool's threads, the
// reduction never.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

// Beyond what Ops::gemm promises, one of a and b may be f32 beside the other in bf16 (products inside other
// operations).
void gemm(Context& context, const GemmArgs& args);

}  // namespace gangway::cpu
