// Casts, fills, sums and norms on the CPU. Callers have checked the arguments (ops/check.h).
//
// Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include "ops/cpu/context.h"

namespace gangway::cpu {

void cast(Context& context, const Tensor& x, const Tensor& y);
void fill(Context& context, const Tensor& y, double value);
void add(Context& context, const Tensor& x, double factor, const Tensor& y);
void scale(Context& context, const Tensor& y, double factor);
void column_sum(Context& context, const Tensor& x, const Tensor& y);
void norm_power(Context& context, const Tensor& x, double p, const Tensor& out);
void fill_normal(Context& context, const Tensor& y, uint64_t key, uint64_t first_element, double deviation);
void id_range(Context& context, const Tensor& ids, int64_t ignore, const Tensor& out);

}  // namespace gangway::cpu
