// Modules that run one after the other; each passes one tensor to the next. The memory for temporaries does
// not grow with the number of modules: without a frame, each output is moved down over the temporaries of the
// module that made it; in backward, Frame::compact does the same for gradients.
//
// Thread rule: that of the modules.
#pragma once

#include "nn/module.h"

namespace gangway {

// A module whose children run one after the other. It can be cut between any two children: a range of them is
// a stage of a pipeline. The first input goes to the first child. Further inputs (labels) go to the last
// child, after the output of the child before it, and have no gradients.
class Chain : public Module {
 public:
  size_t output_count(size_t inputs) const override { return child(last()).output_count(inputs); }
  size_t gradient_count() const override { return child(last()).gradient_count(); }
  std::optional<DataFlow> data_flow() const override;

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

  // Throws INVALID_ARGUMENT if the chain does not accept such inputs, before any child sees them.
  virtual void check_inputs(std::span<const Spec> inputs) const = 0;
  // check_forward, forward and backward of children [first, end) alone. `inputs`: the tensor that child
  // `first` takes, then, if the range has the chain's last child, the chain's further inputs.
  Specs check_range(Context& ctx, size_t first, size_t end, std::span<const Spec> inputs);
  Values forward_range(Context& ctx, size_t first, size_t end, std::span<const Tensor> inputs, Frame* frame);
  // Takes the gradients of the range's outputs (none for a loss) and returns the gradient of its first input.
  Tensor backward_range(Context& ctx, size_t first, size_t end, std::span<const Tensor> dy, Frame& frame);

 protected:
  size_t last() const { return children().size() - 1; }
};

}  // namespace gangway
