#include "nn/chain.h"

#include "base/interrupt.h"
#include "nn/compact.h"

namespace gangway {

std::optional<DataFlow> Chain::data_flow() const {
  DataFlow flow{.steps = {}, .output = {last()}};
  for (size_t i = 0; i < children().size(); ++i)
    flow.steps.push_back({i, {i == 0 ? DataFlow::kInput : i - 1}});
  return flow;
}

Specs Chain::check_forward(Context& ctx, std::span<const Spec> inputs) {
  check_inputs(inputs);
  return check_range(ctx, 0, children().size(), inputs);
}

Values Chain::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  check_inputs(specs_of(inputs));
  return forward_range(ctx, 0, children().size(), inputs, frame);
}

Values Chain::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  Values gradients(gradient_count());
  gradients[0] = backward_range(ctx, 0, children().size(), dy, frame);
  return gradients;
}

Specs Chain::check_range(Context& ctx, size_t first, size_t end, std::span<const Spec> inputs) {
  Specs x{inputs[0]};
  for (size_t i = first; i + 1 < end && !x.empty(); ++i) x = child(i).check_forward(ctx, {x.data(), 1});
  if (x.empty()) return {};
  x.resize(1);
  x.insert(x.end(), inputs.begin() + 1, inputs.end());
  return child(end - 1).check_forward(ctx, x);
}

Values Chain::forward_range(Context& ctx, size_t first, size_t end, std::span<const Tensor> inputs,
                            Frame* frame) {
  const Stack::Mark mark = ctx.temporaries.mark();
  Values x(inputs.begin(), inputs.end());
  for (size_t i = first; i + 1 < end; ++i) {
    poll_interrupt_throttled();
    x[0] = child(i).forward_one(ctx, x[0], frame);
    if (frame == nullptr) x[0] = compact(ctx.temporaries, mark, x[0], ctx.stream);
  }
  poll_interrupt_throttled();
  const TraceSpan span = child(end - 1).span(ctx, "forward");
  return child(end - 1).forward(ctx, x, frame);
}

Tensor Chain::backward_range(Context& ctx, size_t first, size_t end, std::span<const Tensor> dy,
                             Frame& frame) {
  const Stack::Mark mark = frame.mark();
  Tensor dx;
  {
    const TraceSpan span = child(end - 1).span(ctx, "backward");
    dx = frame.compact(ctx, mark, child(end - 1).backward(ctx, dy, frame).at(0));
  }
  for (size_t i = end - 1; i > first; --i) {
    poll_interrupt_throttled();
    dx = frame.compact(ctx, mark, child(i - 1).backward_one(ctx, dx, frame));
  }
  return dx;
}

}  // namespace gangway
