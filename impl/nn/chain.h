// One module after the other, one tensor from each to the next; memory stays flat: without a frame each output is moved
// down over the temporaries that made it, in backward Frame::compact does that.
//
// Thread rule: that of the modules.
#pragma once

#include "nn/module.h"

namespace gangway {

// A module whose children run one after the other, so that it can be cut between any two of them: a range of the
// children is a stage of a pipeline. The first input goes to the first child; further ones (labels) go to the last child,
// beside what the child before gave, and have no gradients.
class Chain : public Module {
 public:
  size_t output_count(size_t inputs) const override { return child(last()).output_count(inputs); }
  size_t gradient_count() const override { return child(last()).gradient_count(); }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

  // Throws what the chain refuses of its inputs before any child sees them.
  virtual void check_inputs(std::span<const Spec> inputs) const = 0;
  // The same of children [first, end) alone. `inputs`: the tensor that child `first` takes, then, where the last child is
  // among them, the chain's further inputs.
  Specs check_range(Context& ctx, size_t first, size_t end, std::span<const Spec> inputs);
  Values forward_range(Context& ctx, size_t first, size_t end, std::span<const Tensor> inputs, Frame* frame);
  // Gradients of the range's outputs (none for a loss) -> the gradient of its first input.
  Tensor backward_range(Context& ctx, size_t first, size_t end, std::span<const Tensor> dy, Frame& frame);

 protected:
  size_t last() const { return children().size() - 1; }
};

}  // namespace gangway
