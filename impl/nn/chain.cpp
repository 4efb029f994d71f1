#include "nn/chain.h"

#include "base/interrupt.h"
#include "nn/compact.h"

namespace gangway {

Specs chain_check(Context& ctx, Module& parent, size_t first, size_t last, Specs x) {
  for (size_t i = first; i < last && !x.empty(); ++i) x = parent.child(i).check_forward(ctx, {x.data(), 1});
  return x;
}

Tensor chain_forward(Context& ctx, Module& parent, size_t first, size_t last, Tensor x, Frame* frame) {
  const Stack::Mark mark = ctx.temporaries.mark();
  for (size_t i = first; i < last; ++i) {
    poll_interrupt_at_times();
    x = parent.child(i).forward1(ctx, x, frame);
    if (frame == nullptr) x = compact(ctx.temporaries, mark, x, ctx.stream);
  }
  return x;
}

Tensor chain_backward(Context& ctx, Module& parent, size_t first, size_t last, Tensor dy, Frame& frame,
                      const Stack::Mark& mark) {
  for (size_t i = last; i > first; --i) {
    poll_interrupt_at_times();
    dy = frame.compact(ctx, mark, parent.child(i - 1).backward1(ctx, dy, frame));
  }
  return dy;
}

}  // namespace gangway
