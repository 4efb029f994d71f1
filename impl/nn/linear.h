// The linear layer, y = x W^T + b. Tensor parallelism needs the class, not only make_linear: it computes with
// the part of W and b that this device has.
//
// Thread rule: that of a module.
#pragma once

#include "nn/layers.h"

namespace gangway {

class Linear final : public Module {
 public:
  // `skip_bias_add`: forward does not add the bias, but returns it as the second output.
  Linear(int64_t in, int64_t out, bool bias, double deviation, bool skip_bias_add = false);

  const char* kind() const override { return "Linear"; }
  bool is_linear() const override { return true; }
  void add_options(CallSignature& signature) const override;
  size_t output_count(size_t) const override { return skips_bias_add_ ? 2 : 1; }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;
  void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) override;

  // The two parts of forward, for wrappers that add the bias once to a sum over ranks, or compute a few rows
  // at a time: the product without the bias, and saving what backward needs. backward() is the same as after
  // forward().
  void product(Context& ctx, const Tensor& x_TI, const Tensor& y_TO) const;
  void save_input(const Tensor& x, Frame* frame) const;

  Parameter& weight() const;
  Parameter* bias() const;  // null: the layer has none
  bool skips_bias_add() const { return skips_bias_add_; }
  // The second output of a layer that skips the addition: a copy, because values may be resharded after
  // forward.
  Tensor copy_of_bias(Context& ctx, Frame* frame) const;

 private:
  void multiply(Context& ctx, const Tensor& x_TI, const Tensor& y_TO, const Tensor& bias) const;
  void check(const Spec& x) const;

  const bool skips_bias_add_;
};

}  // namespace gangway
