// The linear layer, y = x W^T + b, the adapter that it may have (lora.h), and its products in FP8 (fp8.h).
// Tensor parallelism needs the class, not only make_linear: it computes with the part of W and b that this
// device has.
//
// Thread rule: that of a module.
#pragma once

#include "nn/dropout.h"
#include "nn/fp8.h"
#include "nn/layers.h"

namespace gangway {

class CodedInput;
struct LoraSettings;

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
  void add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) override;
  void backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) override;

  // What a product of forward reads: the input, the inner values of the adapter (absent without one), which
  // the product makes unless a dropout has made them, and the codes of a layer in FP8.
  struct Operands {
    Tensor x_TI, low_TR;
    bool low_is_made = false;
    Fp8Products::Operand x_codes = {}, w_codes = {};
    Operands rows(int64_t first, int64_t last) const;
  };
  // The parts of forward, for wrappers that add the bias once to a sum over ranks, or compute a few rows at a
  // time: the operands, which lie in the frame and in the temporaries; the product without the bias, the
  // adapter's included, which writes low_TR unless it is made; saving what backward needs. backward() is the
  // same as after forward().
  Operands operands(Context& ctx, const Tensor& x, Frame* frame) const;
  void product(Context& ctx, const Operands& operands, const Tensor& y_TO) const;
  void save_input(const Tensor& x, const Operands& operands, Frame* frame) const;
  // INVALID_ARGUMENT: the layer takes no such input. For a wrapper that gives it codes in place of values.
  void check_input(const Spec& x) const;

  Parameter& weight() const;
  Parameter* bias() const;  // null: the layer has none
  bool skips_bias_add() const { return skips_bias_add_; }
  // Gives the layer an adapter (apply_lora). lora(), lora_a() and lora_b() are null without one.
  struct Factor {
    const char* name;
    Init init;
  };
  void add_lora(std::shared_ptr<const LoraSettings> settings, const Factor& a, const Factor& b);
  // For a layer whose input is a part, of which the adapter's dropout must know. Call it between forwards
  // only.
  void set_input_part(const ValuePart& part) { input_part_ = part; }
  const ValuePart& input_part() const { return input_part_; }
  const LoraSettings* lora() const { return lora_.get(); }
  Parameter* lora_a() const { return lora_ == nullptr ? nullptr : parameters()[has_bias_ ? 2 : 1].get(); }
  Parameter* lora_b() const { return lora_ == nullptr ? nullptr : parameters()[has_bias_ ? 3 : 2].get(); }
  // Makes the layer compute in FP8 (apply_fp8). fp8() is null otherwise.
  void set_fp8(std::shared_ptr<Fp8Products> products) { fp8_ = std::move(products); }
  Fp8Products* fp8() const { return fp8_.get(); }
  Values tables() const override { return fp8_ == nullptr ? Values() : fp8_->tables(); }
  // The second output of a layer that skips the addition: a copy, because values may be resharded after
  // forward.
  Tensor copy_of_bias(Context& ctx, Frame* frame) const;

 private:
  Tensor allocate_low(Context& ctx, const Tensor& x, Frame* frame) const;
  // Whether a dropout acts on the adapter's input in this forward.
  bool drops_input(const Context& ctx, const Frame* frame) const;
  // That dropout; y may be x.
  void drop_input(Context& ctx, const Tensor& x, const Tensor& y) const;
  // The inner values of the whole input, where a dropout acts on it. Returns whether it does.
  bool make_dropped_low(Context& ctx, const Tensor& x, const Tensor& low_TR, Frame* frame) const;
  // The product of an input that has codes, and no values.
  void multiply_codes(Context& ctx, const CodedInput& input, const Tensor& y_TO, const Tensor& bias,
                      Frame* frame) const;
  void multiply(Context& ctx, const Operands& operands, const Tensor& y_TO, const Tensor& bias) const;
  void multiply_as_it_arrives(Context& ctx, const Operands& operands, const Tensor& y_TO,
                              const Tensor& bias) const;
  void multiply_a(Context& ctx, const Tensor& x_TI, const Tensor& low_TR) const;
  void add_b(Context& ctx, const Tensor& low_TR, const Tensor& y_TO) const;
  // The input half: dx = dy W, or dx += dy W (`add`).
  void input_half(Context& ctx, std::span<const Tensor> dy, const Tensor& dx, bool add, Frame& frame);
  void weight_gradient(Context& ctx, const Tensor& dy, Frame& frame);
  void adapter_backward(Context& ctx, const Tensor& dy, const Tensor& dx, Frame& frame);

  const bool has_bias_, skips_bias_add_;
  std::shared_ptr<const LoraSettings> lora_;
  ValuePart input_part_;
  std::shared_ptr<Fp8Products> fp8_;
};

// Writes dy^T x to the target, or adds it, as the target says: the gradient of a weight.
void add_outer(Context& ctx, const Tensor& dy, const Tensor& x, const GradientTarget& target);

// Adds `row` to each row of y, as the product of a column of ones with it.
void add_to_rows(Context& ctx, const Tensor& row, const Tensor& y_TO);

}  // namespace gangway
