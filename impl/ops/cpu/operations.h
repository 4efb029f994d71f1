// The operations of ops.h on the CPU. Each is in the .cpp of its family. Callers have checked the arguments
// (ops/check.h).
//
// Thread rule: the rank's thread; works on the context's pool.
#pragma once

#include <algorithm>

#include "ops/cpu/context.h"

namespace gangway::cpu {

#define GANGWAY_OPERATION(name, Args) void name(Context& context, const Args& args);
GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION

inline void* raw_or_null(const Tensor& t) { return t ? t.raw() : nullptr; }

// Runs task(thread, first row, last row) over rows of `width` elements. A thread gets rows of at least about
// `grain` elements.
template <typename Task>
void over_rows(Context& context, int64_t rows, int64_t width, size_t grain, const Task& task) {
  const size_t grain_rows = std::max<size_t>(1, grain / std::max<size_t>(1, static_cast<size_t>(width)));
  context.pool.run(static_cast<size_t>(rows), grain_rows, [&](int thread, size_t first, size_t last) {
    task(thread, static_cast<int64_t>(first), static_cast<int64_t>(last));
  });
}

// Returns whether oneDNN computes products of this dtype here, except tiny ones.
bool gemm_uses_onednn(Context& context, DType dtype);

}  // namespace gangway::cpu
