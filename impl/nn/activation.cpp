#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

constexpr int kX = 0;  // slot of the frame

class ActivationLayer final : public Module {
 public:
  explicit ActivationLayer(Activation activation) : activation_(activation) {}

  const char* kind() const override { return "Activation"; }
  void add_options(CallSignature& signature) const override { signature.add("activation", activation_); }
  // Element by element: the output lies as the input does.
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {}, .output = {DataFlow::kInput}, .is_nonlinear = true};
  }

  Specs check_forward(Context&, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x);
    return {x};
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    check(spec_of(x));
    const Tensor y = make_output(ctx, frame, x.dtype(), x.shape());
    ctx.ops.activation({.x = x.flatten2(), .y = y.flatten2(), .activation = activation_}, ctx.stream);
    if (frame != nullptr) frame->slots().save(*this, kX, x);
    return {y};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor x = frame.slots().load(ctx, *this, kX);
    const Tensor dx = frame.allocate_gradient(x.dtype(), x.shape());
    ctx.ops.activation_backward({.x = x.flatten2(),
                                 .dy = first_gradient(dy, *this).flatten2(),
                                 .dx = dx.flatten2(),
                                 .y = {},
                                 .activation = activation_},
                                ctx.stream);
    return {dx};
  }

 private:
  void check(const Spec& x) const {
    if (x.shape.rank() < 1 || !is_floating(x.dtype))
      fail(Code::invalid_argument, "Activation ", full_name(), ": input is ", x.text(),
           ", wanted a floating dtype and at least one dim");
  }

  const Activation activation_;
};

}  // namespace

ModulePtr make_activation(Activation activation) { return std::make_shared<ActivationLayer>(activation); }

}  // namespace gangway
