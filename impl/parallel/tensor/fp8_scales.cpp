#include "parallel/tensor/fp8_scales.h"

namespace gangway {

// The scale of the whole is the largest of its parts' scales, because a scale grows with the magnitude.
void SplitFp8Scales::join(Context& ctx, const Tensor& scale) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::max;
  c.in = c.out = scale.raw();
  c.count = static_cast<size_t>(scale.count());
  c.dtype = scale.dtype();
  const WorkPtr work = gang_->run(channel_, c, &ctx.stream);
  work->order(ctx.stream);
  work->order_input(ctx.stream);
}

}  // namespace gangway
