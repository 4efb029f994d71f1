// Letters: T tokens, I inputs, O outputs.
#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

constexpr int kX = 0;       // slot
constexpr int kWeight = 0;  // parameter, and the one weight task
constexpr int kBias = 1;

class Linear final : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, double deviation) {
    if (in < 1 || out < 1)
      fail(Code::invalid_argument, "Linear: in is ", in, " and out is ", out, "; both are 1 or more");
    add_parameter("weight", Shape{out, in}, Init::normal(deviation));
    if (bias) add_parameter("bias", Shape{out}, Init::zeros());
  }

  const char* kind() const override { return "Linear"; }
  bool is_linear() const override { return true; }

  Specs check_forward(Context&, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x);
    return {{x.dtype, with_last(x.shape, spec_of(*parameters()[kWeight]).shape[0])}};
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    const Tensor& w_OI = value_of(*parameters()[kWeight]);
    check(spec_of(x));
    const Tensor y = make_output(ctx, frame, x.dtype(), with_last(x.shape(), w_OI.dim(0)));
    GemmArgs product{.a = x.flatten2(), .b = w_OI, .c = y.flatten2(), .bias = {}, .transpose_b = true};
    if (has_bias()) product.bias = value_of(*parameters()[kBias]);
    ctx.ops.gemm(product, ctx.stream);
    if (frame != nullptr) frame->save(*this, kX, x);
    return {y};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor& w_OI = value_of(*parameters()[kWeight]);
    const Tensor& dy_TO = first_gradient(dy, *this);
    const Tensor dx = frame.allocate_gradient(dy_TO.dtype(), with_last(dy_TO.shape(), w_OI.dim(1)));
    ctx.ops.gemm({.a = dy_TO.flatten2(), .b = w_OI, .c = dx.flatten2(), .bias = {}}, ctx.stream);
    if (wants_gradient(*parameters()[kWeight])) frame.prepare(ctx, *this, kX);
    if (wants_gradient(*parameters()[kWeight]) || (has_bias() && wants_gradient(*parameters()[kBias])))
      frame.push_weight(*this, kWeight, dy_TO);
    return {dx};
  }

  void backward_weight(Context& ctx, Frame& frame, int, const Tensor& dy) override {
    if (Parameter& weight = *parameters()[kWeight]; wants_gradient(weight)) {
      const Tensor x_TI = frame.load(ctx, *this, kX).flatten2();
      const GradientTarget target = gradient_to_write(weight);
      ctx.ops.gemm({.a = dy.flatten2(),
                    .b = x_TI,
                    .c = target.grad,
                    .bias = {},
                    .transpose_a = true,
                    .accumulate = target.accumulate},
                   ctx.stream);
    }
    if (has_bias() && wants_gradient(*parameters()[kBias]))
      ctx.ops.column_sum(dy.flatten2(), gradient_to_add(ctx, *parameters()[kBias]), ctx.stream);
  }

 private:
  bool has_bias() const { return parameters().size() > kBias; }

  void check(const Spec& x) const {
    const Spec w_OI = spec_of(*parameters()[kWeight]);
    if (x.shape.rank() < 1 || x.shape.back() != w_OI.shape[1])
      fail(Code::invalid_argument, "Linear ", full_name(), ": input is ", x.text(), ", its last dim must be ",
           w_OI.shape[1]);
    if (x.dtype != w_OI.dtype)
      fail(Code::invalid_argument, "Linear ", full_name(), ": input is ", x.text(), " and weight is ",
           w_OI.text(), "; they must have one dtype");
  }
};

}  // namespace

ModulePtr make_linear(int64_t in, int64_t out, bool bias, double deviation) {
  return std::make_shared<Linear>(in, out, bias, deviation);
}

}  // namespace gangway
