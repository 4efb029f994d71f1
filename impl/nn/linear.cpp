// Letters: T tokens, I inputs, O outputs.
#include "nn/linear.h"

#include "nn/gradient.h"

namespace gangway {
namespace {

constexpr int kX = 0;       // slot of the frame
constexpr int kWeight = 0;  // index of the parameter, and number of the weight task of the first output
constexpr int kBias = 1;    // index of the parameter, and number of the weight task of the second output

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool bias, double deviation, bool skip_bias_add)
    : skips_bias_add_(skip_bias_add) {
  if (in < 1 || out < 1)
    fail(Code::invalid_argument, "Linear: in is ", in, " and out is ", out, "; both are 1 or more");
  add_parameter("weight", Shape{out, in}, Init::normal(deviation));
  if (bias) add_parameter("bias", Shape{out}, Init::zeros());
}

void Linear::add_options(CallSignature& signature) const {
  if (skips_bias_add_) signature.add("skip_bias_add", true);
}

Parameter& Linear::weight() const { return *parameters()[kWeight]; }
Parameter* Linear::bias() const { return parameters().size() > kBias ? parameters()[kBias].get() : nullptr; }

Specs Linear::check_forward(Context&, std::span<const Spec> inputs) {
  const Spec& x = first_input(inputs, *this);
  check(x);
  Specs y = {{x.dtype, with_last(x.shape, spec_of(weight()).shape[0])}};
  if (skips_bias_add_) y.push_back(spec_of(*bias()));
  return y;
}

Tensor Linear::copy_of_bias(Context& ctx, Frame* frame) const {
  const Tensor& value = value_of(*bias());
  const Tensor copy = make_output(ctx, frame, value.dtype(), value.shape());
  ctx.ops.cast(value, copy, ctx.stream);
  return copy;
}

Values Linear::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor& x = first_input(inputs, *this);
  const Tensor& w_OI = value_of(weight());
  check(spec_of(x));
  const Tensor y = make_output(ctx, frame, x.dtype(), with_last(x.shape(), w_OI.dim(0)));
  const Tensor x_TI = x.flatten2(), y_TO = y.flatten2();
  const Tensor b_O = bias() == nullptr || skips_bias_add_ ? Tensor() : value_of(*bias());
  if (ctx.arriving != nullptr && ctx.arriving->holds(x)) {
    while (true) {
      const std::vector<RowRange> part = ctx.arriving->next(ctx);
      if (part.empty()) break;
      for (const auto& [first, last] : part)
        multiply(ctx, x_TI.slice(0, first, last), y_TO.slice(0, first, last), b_O);
    }
  } else {
    multiply(ctx, x_TI, y_TO, b_O);
  }
  save_input(x, frame);
  if (skips_bias_add_) return {y, copy_of_bias(ctx, frame)};
  return {y};
}

void Linear::product(Context& ctx, const Tensor& x_TI, const Tensor& y_TO) const {
  check(spec_of(x_TI));
  multiply(ctx, x_TI, y_TO, Tensor());
}

void Linear::save_input(const Tensor& x, Frame* frame) const {
  if (frame != nullptr) frame->slots().save(*this, kX, x);
}

void Linear::multiply(Context& ctx, const Tensor& x_TI, const Tensor& y_TO, const Tensor& bias) const {
  ctx.ops.gemm({.a = x_TI, .b = value_of(weight()), .c = y_TO, .bias = bias, .transpose_b = true},
               ctx.stream);
}

Values Linear::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  const Tensor& w_OI = value_of(weight());
  const Tensor& dy_TO = first_gradient(dy, *this);
  const Tensor dx = frame.allocate_gradient(dy_TO.dtype(), with_last(dy_TO.shape(), w_OI.dim(1)));
  ctx.ops.gemm({.a = dy_TO.flatten2(), .b = w_OI, .c = dx.flatten2(), .bias = {}}, ctx.stream);
  if (wants_gradient(weight())) frame.slots().prepare(ctx, *this, kX);
  const bool wants_bias = bias() != nullptr && wants_gradient(*bias());
  if (wants_gradient(weight()) || (wants_bias && !skips_bias_add_)) frame.push_weight(*this, kWeight, dy_TO);
  if (wants_bias && skips_bias_add_ && dy.size() > 1 && dy[1]) frame.push_weight(*this, kBias, dy[1]);
  return {dx};
}

void Linear::backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) {
  if (index == kBias) {
    ctx.ops.column_sum(dy.reshape(Shape{1, dy.count()}), gradient_to_add(ctx, *bias()), ctx.stream);
    return;
  }
  if (wants_gradient(weight())) {
    const Tensor x_TI = frame.slots().load(ctx, *this, kX).flatten2();
    const GradientTarget target = gradient_to_write(weight());
    ctx.ops.gemm({.a = dy.flatten2(),
                  .b = x_TI,
                  .c = target.grad,
                  .bias = {},
                  .transpose_a = true,
                  .accumulate = target.accumulate},
                 ctx.stream);
  }
  if (bias() != nullptr && wants_gradient(*bias()) && !skips_bias_add_)
    ctx.ops.column_sum(dy.flatten2(), gradient_to_add(ctx, *bias()), ctx.stream);
}

void Linear::check(const Spec& x) const {
  const Spec w_OI = spec_of(weight());
  if (x.shape.rank() < 1 || x.shape.back() != w_OI.shape[1])
    fail(Code::invalid_argument, "Linear ", full_name(), ": input is ", x.text(), ", its last dim must be ",
         w_OI.shape[1]);
  if (x.dtype != w_OI.dtype)
    fail(Code::invalid_argument, "Linear ", full_name(), ": input is ", x.text(), " and weight is ",
         w_OI.text(), "; they must have one dtype");
}

ModulePtr make_linear(int64_t in, int64_t out, bool bias, double deviation) {
  return std::make_shared<Linear>(in, out, bias, deviation);
}

ModulePtr make_linear_skip_bias_add(int64_t in, int64_t out, double deviation) {
  return std::make_shared<Linear>(in, out, /*bias=*/true, deviation, /*skip_bias_add=*/true);
}

}  // namespace gangway
