#include "ops/cpu/kernels/embedding_kernels.h"

#include "ops/cpu/simd.h"

namespace gangway::cpu::GANGWAY_ISA_NAMESPACE {
namespace {

template <typename T>
void scatter(const EmbeddingScatter& p, int64_t first, int64_t last) {
  using S = Scalar<T>;
  for (int64_t t = 0; t < p.tokens; ++t) {
    const uint64_t row = static_cast<uint64_t>(p.ids[t]) - static_cast<uint64_t>(p.first_row);
    if (row >= static_cast<uint64_t>(p.rows)) continue;
    const T* from = static_cast<const T*>(p.dy) + t * p.width + first;
    S* to = static_cast<S*>(p.dtable) + static_cast<int64_t>(row) * p.width + first;
    for_lanes<T>(last - first,
                 [&](int64_t d, auto n) GW_BODY { store(to + d, load(to + d, n) + load(from + d, n), n); });
  }
}

}  // namespace

extern const EmbeddingKernels embedding_kernels = {
    {scatter<float>, scatter<bf16_t>, scatter<f16_t>, scatter<double>}};

}  // namespace gangway::cpu::GANGWAY_ISA_NAMESPACE
