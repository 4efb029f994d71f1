// Letters: T tokens, I inputs, O outputs, R rank of the adapter.
//
// The inner values of an adapter, scale x A^T, and room for their gradient are saved in the frame. They are
// small, and the weight half needs them when the values of A may be resharded already. With a dropout, x here
// is the dropped input. It is made again where backward needs it, and it is made of the whole input, because
// its bits count rows and tokens.
#include "nn/linear.h"

#include "device/gpu_plans.h"
#include "nn/coded_input.h"
#include "nn/gradient.h"
#include "nn/lora.h"

namespace gangway {
namespace {

// An input of codes is saved as its transposed codes and their scales.
enum Slot : int { kX, kLow, kLowGradient, kXScale };
// Numbers of the weight tasks. Those of the first and the second output are the indices of the parameters,
// too.
enum Task : int { kWeight, kBias, kLoraA, kLoraB };

// Waits for the parts of `x` that are still to arrive.
void take_all(Context& ctx, const Tensor& x) {
  while (ctx.arriving != nullptr && ctx.arriving->holds(x)) ctx.arriving->next(ctx);
}

// Adds dy^T x to the gradient of `parameter`.
void add_outer(Context& ctx, const Tensor& dy, const Tensor& x, Parameter& parameter) {
  add_outer(ctx, dy, x, gradient_to_write(parameter));
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool bias, double deviation, bool skip_bias_add)
    : has_bias_(bias), skips_bias_add_(skip_bias_add) {
  if (in < 1 || out < 1)
    fail(Code::invalid_argument, "Linear: in is ", in, " and out is ", out, "; both are 1 or more");
  add_parameter("weight", Shape{out, in}, Init::normal(deviation));
  if (bias) add_parameter("bias", Shape{out}, Init::zeros());
}

void Linear::add_options(CallSignature& signature) const {
  if (skips_bias_add_) signature.add("skip_bias_add", true);
  if (fp8_ != nullptr) fp8_->add_options(signature);
  if (lora_ == nullptr) return;
  signature.add("lora scale", lora_->options.scale());
  signature.add("lora seed", lora_->options.seed);
  signature.add("lora dropout", lora_->options.dropout);
  signature.add("lora enabled", lora_->enabled);
}

void Linear::add_lora(std::shared_ptr<const LoraSettings> settings, const Factor& a, const Factor& b) {
  add_parameter(a.name, Shape{settings->options.rank, weight().shape[1]}, a.init);
  add_parameter(b.name, Shape{weight().shape[0], settings->options.rank}, b.init);
  lora_ = std::move(settings);
}

Parameter& Linear::weight() const { return *parameters()[kWeight]; }
Parameter* Linear::bias() const { return has_bias_ ? parameters()[kBias].get() : nullptr; }

Specs Linear::check_forward(Context& ctx, std::span<const Spec> inputs) {
  const Spec& x = first_input(inputs, *this);
  check_input(x);
  const Shape w_OI = spec_of(weight()).shape;
  if (fp8_ != nullptr)
    fp8_->check_products(ctx.ops, full_name(), x.dtype, w_OI[1], w_OI[0],
                         ctx.training && wants_gradient(weight()) ? x.shape.count() / w_OI[1] : -1);
  Specs y = {{x.dtype, with_last(x.shape, w_OI[0])}};
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
  const CodedInput* const coded = fp8_ == nullptr ? nullptr : CodedInput::of(ctx, x);
  if (coded == nullptr) check_input(spec_of(x));
  const Tensor y = make_output(ctx, frame, w_OI.dtype(), with_last(x.shape(), w_OI.dim(0)));
  const Tensor x_TI = x.flatten2(), y_TO = y.flatten2();
  const Tensor b_O = bias() == nullptr || skips_bias_add_ ? Tensor() : value_of(*bias());
  if (coded != nullptr) {
    multiply_codes(ctx, *coded, y_TO, b_O, frame);
  } else {
    const StackScope scope(ctx.temporaries);
    const bool arrives = ctx.arriving != nullptr && ctx.arriving->holds(x);
    if (fp8_ != nullptr) take_all(ctx, x);  // its scales follow from the whole input
    Operands operands;
    if (arrives && fp8_ == nullptr) {
      operands = {x_TI, allocate_low(ctx, x, frame)};
      Operands parts = operands;
      if (drops_input(ctx, frame)) parts.low_TR = {};
      multiply_as_it_arrives(ctx, parts, y_TO, b_O);
      if (make_dropped_low(ctx, x, operands.low_TR, frame)) add_b(ctx, operands.low_TR, y_TO);
    } else {
      operands = this->operands(ctx, x, frame);
      multiply(ctx, operands, y_TO, b_O);
    }
    save_input(x, operands, frame);
  }
  if (skips_bias_add_) return {y, copy_of_bias(ctx, frame)};
  return {y};
}

Linear::Operands Linear::Operands::rows(int64_t first, int64_t last) const {
  Operands part{x_TI, low_TR, low_is_made, x_codes, w_codes};
  if (x_TI) part.x_TI = x_TI.slice(0, first, last);
  if (low_TR) part.low_TR = low_TR.slice(0, first, last);
  if (x_codes.codes) part.x_codes = x_codes.rows(first, last);
  return part;
}

Linear::Operands Linear::operands(Context& ctx, const Tensor& x, Frame* frame) const {
  check_input(spec_of(x));
  Operands all{x.flatten2(), allocate_low(ctx, x, frame)};
  all.low_is_made = make_dropped_low(ctx, x, all.low_TR, frame);
  if (fp8_ == nullptr) return all;
  all.x_codes = fp8_->input(ctx, all.x_TI);
  all.w_codes = fp8_->weight(ctx, value_of(weight()));
  return all;
}

Tensor Linear::allocate_low(Context& ctx, const Tensor& x, Frame* frame) const {
  if (lora_ == nullptr || !lora_->enabled) return {};
  return make_output(ctx, frame, x.dtype(), Shape{x.flatten2().dim(0), lora_->options.rank});
}

bool Linear::drops_input(const Context& ctx, const Frame* frame) const {
  return lora_ != nullptr && lora_->enabled && lora_->options.dropout != 0 &&
         (frame != nullptr || ctx.training);
}

bool Linear::make_dropped_low(Context& ctx, const Tensor& x, const Tensor& low_TR, Frame* frame) const {
  if (!drops_input(ctx, frame)) return false;
  const StackScope scope(ctx.temporaries);
  const Tensor dropped = ctx.temporaries.allocate(x.dtype(), x.shape());
  drop_input(ctx, x, dropped);
  multiply_a(ctx, dropped.flatten2(), low_TR);
  return true;
}

void Linear::drop_input(Context& ctx, const Tensor& x, const Tensor& y) const {
  drop(ctx, step_seed(ctx, full_name() + ".lora_dropout"), lora_->options.dropout, input_part_, x, y);
}

void Linear::product(Context& ctx, const Operands& operands, const Tensor& y_TO) const {
  multiply(ctx, operands, y_TO, Tensor());
}

void Linear::save_input(const Tensor& x, const Operands& operands, Frame* frame) const {
  if (frame == nullptr) return;
  frame->slots().save(*this, kX, x);
  const Tensor& low_TR = operands.low_TR;
  if (!low_TR) return;
  frame->slots().save(*this, kLow, low_TR);
  frame->slots().save(*this, kLowGradient, frame->allocate(low_TR.dtype(), low_TR.shape()));
}

void Linear::multiply_as_it_arrives(Context& ctx, const Operands& operands, const Tensor& y_TO,
                                    const Tensor& bias) const {
  while (true) {
    const std::vector<RowRange> part = ctx.arriving->next(ctx);
    if (part.empty()) return;
    for (const auto& [first, last] : part)
      multiply(ctx, operands.rows(first, last), y_TO.slice(0, first, last), bias);
  }
}

void Linear::multiply_codes(Context& ctx, const CodedInput& input, const Tensor& y_TO, const Tensor& bias,
                            Frame* frame) const {
  const StackScope scope(ctx.temporaries);
  Operands operands;
  operands.x_codes = input.operand();
  operands.w_codes = fp8_->weight(ctx, value_of(weight()));
  // A CPU, which takes other loops for few rows than for many, would give other bits than those of the whole.
  if (input.holds(input.operand().codes) && is_or_plans_for_gpu(ctx.ops.device())) {
    multiply_as_it_arrives(ctx, operands, y_TO, bias);
  } else {
    take_all(ctx, input.operand().codes);
    multiply(ctx, operands, y_TO, bias);
  }
  if (frame == nullptr) return;
  frame->slots().save(*this, kX, input.transposed().codes);
  frame->slots().save(*this, kXScale, input.transposed().scale);
}

void Linear::multiply(Context& ctx, const Operands& operands, const Tensor& y_TO, const Tensor& bias) const {
  const Tensor &x_TI = operands.x_TI, &low_TR = operands.low_TR;
  if (fp8_ != nullptr) {
    fp8_->forward(ctx, operands.x_codes, operands.w_codes, y_TO);
    if (bias) add_to_rows(ctx, bias, y_TO);
  } else {
    ctx.ops.gemm({.a = x_TI, .b = value_of(weight()), .c = y_TO, .bias = bias, .transpose_b = true},
                 ctx.stream);
  }
  if (!low_TR) return;
  if (!operands.low_is_made) multiply_a(ctx, x_TI, low_TR);
  add_b(ctx, low_TR, y_TO);
}

void Linear::multiply_a(Context& ctx, const Tensor& x_TI, const Tensor& low_TR) const {
  ctx.ops.gemm({.a = x_TI, .b = value_of(*lora_a()), .c = low_TR, .bias = {}, .transpose_b = true},
               ctx.stream);
  ctx.ops.scale(low_TR, lora_->options.scale(), ctx.stream);
}

void Linear::add_b(Context& ctx, const Tensor& low_TR, const Tensor& y_TO) const {
  ctx.ops.gemm(
      {.a = low_TR, .b = value_of(*lora_b()), .c = y_TO, .bias = {}, .transpose_b = true, .accumulate = true},
      ctx.stream);
}

Values Linear::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  const Tensor& dy_TO = first_gradient(dy, *this);
  const int64_t inputs = value_of(weight()).dim(1);
  const Tensor dx = frame.allocate_gradient(dy_TO.dtype(), with_last(dy_TO.shape(), inputs));
  input_half(ctx, dy, dx, false, frame);
  return {dx};
}

void Linear::add_backward(Context& ctx, const Tensor& dy, Frame& frame, const Tensor& dx) {
  input_half(ctx, {&dy, 1}, dx, true, frame);
}

void Linear::input_half(Context& ctx, std::span<const Tensor> dy, const Tensor& dx, bool add, Frame& frame) {
  const Tensor& w_OI = value_of(weight());
  const Tensor& dy_TO = first_gradient(dy, *this);
  if (fp8_ != nullptr)
    fp8_->input_gradient(ctx, dy_TO.flatten2(), w_OI, dx.flatten2(), add);
  else
    ctx.ops.gemm({.a = dy_TO.flatten2(), .b = w_OI, .c = dx.flatten2(), .bias = {}, .accumulate = add},
                 ctx.stream);
  if (wants_gradient(weight())) frame.slots().prepare(ctx, *this, kX);
  const bool wants_bias = bias() != nullptr && wants_gradient(*bias());
  if (wants_gradient(weight()) || (wants_bias && !skips_bias_add_)) frame.push_weight(*this, kWeight, dy_TO);
  if (wants_bias && skips_bias_add_ && dy.size() > 1 && dy[1]) frame.push_weight(*this, kBias, dy[1]);
  // Asks the frame, because the adapters may have been switched since the forward.
  if (frame.slots().holds(*this, kLow)) adapter_backward(ctx, dy_TO, dx, frame);
}

void Linear::adapter_backward(Context& ctx, const Tensor& dy, const Tensor& dx, Frame& frame) {
  const Tensor dlow_TR = frame.slots().load(ctx, *this, kLowGradient);
  ctx.ops.gemm({.a = dy.flatten2(), .b = value_of(*lora_b()), .c = dlow_TR, .bias = {}}, ctx.stream);
  ctx.ops.scale(dlow_TR, lora_->options.scale(), ctx.stream);
  if (lora_->options.dropout == 0) {
    ctx.ops.gemm({.a = dlow_TR, .b = value_of(*lora_a()), .c = dx.flatten2(), .bias = {}, .accumulate = true},
                 ctx.stream);
  } else {
    const StackScope scope(ctx.temporaries);
    const Tensor through = ctx.temporaries.allocate(dx.dtype(), dx.shape());
    ctx.ops.gemm({.a = dlow_TR, .b = value_of(*lora_a()), .c = through.flatten2(), .bias = {}}, ctx.stream);
    drop_input(ctx, through, through);
    ctx.ops.add(through, 1, dx, ctx.stream);
  }
  if (wants_gradient(*lora_a())) {
    frame.slots().prepare(ctx, *this, kX);
    frame.push_weight(*this, kLoraA, dlow_TR);
  }
  if (wants_gradient(*lora_b())) frame.push_weight(*this, kLoraB, dy);
}

void Linear::backward_weight(Context& ctx, Frame& frame, int index, const Tensor& dy) {
  if (index == kBias) {
    ctx.ops.column_sum(dy.reshape(Shape{1, dy.count()}), gradient_to_add(ctx, *bias()), ctx.stream);
    return;
  }
  if (index == kLoraB) return add_outer(ctx, dy, frame.slots().load(ctx, *this, kLow), *lora_b());
  if (index == kLoraA) {
    const Tensor x = frame.slots().load(ctx, *this, kX);
    if (lora_->options.dropout == 0) return add_outer(ctx, dy, x, *lora_a());
    const StackScope scope(ctx.temporaries);
    const Tensor dropped = ctx.temporaries.allocate(x.dtype(), x.shape());
    drop_input(ctx, x, dropped);
    return add_outer(ctx, dy, dropped, *lora_a());
  }
  if (wants_gradient(weight())) weight_gradient(ctx, dy, frame);
  if (bias() != nullptr && wants_gradient(*bias()) && !skips_bias_add_)
    ctx.ops.column_sum(dy.flatten2(), gradient_to_add(ctx, *bias()), ctx.stream);
}

void Linear::weight_gradient(Context& ctx, const Tensor& dy, Frame& frame) {
  const Tensor x = frame.slots().load(ctx, *this, kX);
  if (fp8_ == nullptr) return add_outer(ctx, dy, x, weight());
  const GradientTarget target = gradient_to_write(weight());
  if (frame.slots().holds(*this, kXScale))
    fp8_->weight_gradient(ctx, dy.flatten2(), {x, frame.slots().load(ctx, *this, kXScale)}, target.grad,
                          target.accumulate);
  else
    fp8_->weight_gradient(ctx, dy.flatten2(), x.flatten2(), target.grad, target.accumulate);
}

void Linear::check_input(const Spec& x) const {
  const Spec w_OI = spec_of(weight());
  if (x.shape.rank() < 1 || x.shape.back() != w_OI.shape[1])
    fail(Code::invalid_argument, "Linear ", full_name(), ": input is ", x.text(), ", its last dim must be ",
         w_OI.shape[1]);
  if (x.dtype != w_OI.dtype)
    fail(Code::invalid_argument, "Linear ", full_name(), ": input is ", x.text(), " and weight is ",
         w_OI.text(), "; they must have one dtype");
}

void add_outer(Context& ctx, const Tensor& dy, const Tensor& x, const GradientTarget& target) {
  ctx.ops.gemm({.a = dy.flatten2(),
                .b = x.flatten2(),
                .c = target.grad,
                .bias = {},
                .transpose_a = true,
                .accumulate = target.accumulate},
               ctx.stream);
}

void add_to_rows(Context& ctx, const Tensor& row, const Tensor& y_TO) {
  const StackScope scope(ctx.temporaries);
  const Tensor ones = ctx.temporaries.allocate(y_TO.dtype(), Shape{y_TO.dim(0), 1});
  ctx.ops.fill(ones, 1, ctx.stream);
  ctx.ops.gemm(
      {.a = ones, .b = row.reshape(Shape{1, row.count()}), .c = y_TO, .bias = {}, .accumulate = true},
      ctx.stream);
}

ModulePtr make_linear(int64_t in, int64_t out, bool bias, double deviation) {
  return std::make_shared<Linear>(in, out, bias, deviation);
}

ModulePtr make_linear_skip_bias_add(int64_t in, int64_t out, double deviation) {
  return std::make_shared<Linear>(in, out, /*bias=*/true, deviation, /*skip_bias_add=*/true);
}

}  // namespace gangway
