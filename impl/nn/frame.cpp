#include "nn/frame.h"

#include "nn/compact.h"
#include "nn/module.h"

namespace gangway {

// Releasing `more` is safe although weight tasks may be pending. A task refers to memory allocated since
// `before` only if one module's input gradient went to another module as its dy. Then there are at least two
// allocations since `before`, and nothing is released.
void Frame::add_gradient(Context& ctx, const Tensor& dx, const Tensor& more, const Stack::Mark& before) {
  ctx.ops.add(more, 1, dx, ctx.stream);
  if (gradients_.only(before, more)) gradients_.release(before);
}

Tensor Frame::compact(Context& ctx, const Stack::Mark& mark, const Tensor& dx) {
  if (ctx.defer_weight) return dx;
  run_weight_gradients(ctx);
  slots_.drop_recomputed(mark);
  Tensor down = gangway::compact(gradients_, mark, dx, ctx.stream);
  reset_nested();  // after dx was moved, because dx may lie in a nested frame
  return down;
}

size_t Frame::pending_weight() const {
  size_t tasks = weight_tasks_.count();
  for (size_t i = 0; i < nested_used_; ++i) tasks += nested_[i]->pending_weight();
  return tasks;
}

size_t Frame::run_weight_gradients(Context& ctx, size_t most) {
  size_t ran = weight_tasks_.run(ctx, *this, most);
  for (size_t i = 0; i < nested_used_ && ran < most; ++i)
    ran += nested_[i]->run_weight_gradients(ctx, most - ran);
  return ran;
}

Frame& Frame::nest() {
  if (nested_used_ == nested_.size()) nested_.push_back(std::make_unique<Frame>(memory_));
  Frame& frame = *nested_[nested_used_++];
  frame.id = id;
  frame.recompute = recompute;
  frame.parts_.set_backward(parts_.backward());  // the part holds the values that are recomputed from
  return frame;
}

size_t Frame::activation_bytes() const {
  size_t bytes = activations_.high_water_bytes();
  for (const auto& nested : nested_) bytes += nested->activation_bytes();
  return bytes;
}

size_t Frame::gradient_bytes() const {
  size_t bytes = gradients_.high_water_bytes();
  for (const auto& nested : nested_) bytes += nested->gradient_bytes();
  return bytes;
}

void Frame::reset_nested() {
  for (size_t i = 0; i < nested_used_; ++i) nested_[i]->reset();
  nested_used_ = 0;
}

void Frame::reset() {
  user_states_.clear();
  weight_tasks_.clear();
  slots_.clear();
  seen_.clear();
  reset_nested();
  parts_.clear();
  activations_.reset();
  gradients_.reset();
}

}  // namespace gangway
