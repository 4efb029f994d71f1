// The layer that tensor parallelism splits, as a class: y = x W^T + b of the part of W and b that this device has.
//
// Thread rule: that of a module.
#pragma once

#include "nn/layers.h"

namespace gangway {

class Linear final : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, double deviation);

  const char* kind() const override { return "Linear"; }
  bool is_linear() const override { return true; }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) override;

  // forward without the bias, into `y`, for a sum of several products to which the bias is added once. Its backward is
  // that of forward.
  void product(Context& ctx, const Tensor& x, const Tensor& y, Frame* frame);

  Parameter& weight() const;
  Parameter* bias() const;  // null: none

 private:
  void multiply(Context& ctx, const Tensor& x, const Tensor& y, const Tensor& bias, Frame* frame);
  void check(const Spec& x) const;
};

}  // namespace gangway
