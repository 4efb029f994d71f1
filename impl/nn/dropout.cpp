#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

class Dropout final : public Module {
 public:
  explicit Dropout(double probability) : probability_(probability) {
    if (!(probability >= 0 && probability < 1))
      fail(Code::invalid_argument, "Dropout: probability is ", probability, ", outside of [0, 1)");
  }

  const char* kind() const override { return "Dropout"; }
  void add_options(CallSignature& signature) const override { signature.add("probability", probability_); }
  // Element by element: the output lies as the input does. Ranks of tp drop the same elements, so that a sum
  // of their tensors stays one.
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {}, .output = {DataFlow::kInput}};
  }

  Specs check_forward(Context&, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x);
    return {x};
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    check(spec_of(x));
    if (probability_ == 0 || (frame == nullptr && !ctx.training)) return {x};
    const Tensor y = make_output(ctx, frame, x.dtype(), x.shape());
    drop(ctx, x, y);
    return {y};
  }

  // Nothing is saved: the bits follow from the call.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor& gradient = first_gradient(dy, *this);
    const Tensor dx = frame.allocate_gradient(gradient.dtype(), gradient.shape());
    if (probability_ == 0)
      ctx.ops.cast(gradient, dx, ctx.stream);
    else
      drop(ctx, gradient, dx);
    return {dx};
  }

 private:
  void drop(Context& ctx, const Tensor& x, const Tensor& y) const {
    ctx.ops.dropout({.x = x.flatten2(),
                     .y = y.flatten2(),
                     .rows = {},
                     .key = call_seed(ctx, full_name()),
                     .probability = probability_,
                     .columns = x.dim(-1)},
                    ctx.stream);
  }

  void check(const Spec& x) const {
    if (x.shape.rank() < 1 || !is_floating(x.dtype))
      fail(Code::invalid_argument, "Dropout ", full_name(), ": input is ", x.text(),
           ", wanted a floating dtype and at least one dim");
  }

  const double probability_;
};

}  // namespace

ModulePtr make_dropout(double probability) { return std::make_shared<Dropout>(probability); }

}  // namespace gangway
