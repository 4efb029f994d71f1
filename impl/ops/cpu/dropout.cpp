#include <cmath>

#include "ops/cpu/kernels/dropout_kernels.h"
#include "ops/cpu/operations.h"

namespace gangway::cpu {

void dropout(Context& context, const DropoutArgs& args) {
  constexpr size_t kGrainElements = 4096;  // a random number costs far more than the product
  const DropoutRows p{args.x.raw(),
                      args.y.raw(),
                      args.rows ? args.rows.data<int64_t>() : nullptr,
                      args.first_row,
                      args.first_column,
                      args.columns,
                      args.x.dim(1),
                      args.key,
                      static_cast<uint64_t>(std::ceil(args.probability * 0x1p53)),
                      1 / (1 - args.probability)};
  const auto kernel =
      choose(context.isa, portable::dropout_kernels, avx2::dropout_kernels, avx512::dropout_kernels)
          .apply[args.x.dtype()];
  over_rows(context, args.x.dim(0), args.x.dim(1), kGrainElements,
            [&](int, int64_t first, int64_t last) { kernel(p, first, last); });
}

}  // namespace gangway::cpu
