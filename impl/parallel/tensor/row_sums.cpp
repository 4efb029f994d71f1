#include "parallel/tensor/row_sums.h"

#include "parallel/tensor/style.h"

namespace gangway {

SplitRowSums::SplitRowSums(const GangPtr& gang, Channel channel)
    : sum_(make_redistribute(ValueLayout::partial().over(kTensorAxis),
                             ValueLayout::replicate().over(kTensorAxis), gang, channel)) {}

void SplitRowSums::sum(Context& ctx, const Tensor& sums) {
  const StackScope scope(ctx.temporaries);
  const Tensor own = ctx.temporaries.allocate(sums.dtype(), sums.shape());
  ctx.ops.cast(sums, own, ctx.stream);
  Redistribute::Started all = sum_->start_forward(ctx, own, sums);
  sum_->finish(ctx, all);
}

}  // namespace gangway
