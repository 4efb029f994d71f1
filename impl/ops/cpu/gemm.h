// Matrix products on the CPU.
//
// By oneDNN where it has a product for the dtype on this processor (f32 always, bf16 with AVX-512 or where a
// later version has more), else by our own blocked product, which turns bf16 into panels of f32. The result is
// split over the pool's threads, the reduction never.
//
// Arguments have been checked (ops/check.h). Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

// Beyond what Ops::gemm promises, one of a and b may be f32 beside the other in bf16 (products inside other
// operations).
void gemm(Context& context, const GemmArgs& args);

// Whether oneDNN multiplies products of this dtype here, but for tiny ones.
bool gemm_by_vendor(Context& context, DType dtype);

}  // namespace gangway::cpu
