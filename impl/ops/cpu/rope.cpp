#include "ops/cpu/operations.h"

#include <algorithm>

#include "ops/cpu/kernels/rope_kernels.h"

namespace gangway::cpu {

void rope(Context& context, const RopeArgs& args) {
  constexpr size_t kGrainElements = 16384;
  const RopeRows p{args.x.raw(),
                   args.y.raw(),
                   args.x.stride(0),
                   args.y.stride(0),
                   args.cos.raw(),
                   args.sin.raw(),
                   args.positions ? args.positions.data<int32_t>() : nullptr,
                   args.heads,
                   args.x.dim(1) / args.heads,
                   args.cos.dim(1),
                   args.positions ? args.positions.dim(0) : args.sequence,
                   args.inverse};
  const auto kernel = choose(context.isa, portable::rope_kernels, avx2::rope_kernels, avx512::rope_kernels)
                          .rotate[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
}

}  // namespace gangway::cpu
