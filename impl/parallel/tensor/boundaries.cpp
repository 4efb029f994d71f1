#include "parallel/tensor/boundaries.h"

#include "nn/gradient.h"

namespace gangway {

Boundaries::Boundaries(ModulePtr inner, RedistributePtr before, RedistributePtr after)
    : before_(std::move(before)), after_(std::move(after)) {
  set_full_name(inner->full_name());
  add_child("", std::move(inner));
}

void Boundaries::add_options(Facts& facts) const {
  facts.add("input", before_ == nullptr ? "as it comes" : before_->text());
  facts.add("output", after_ == nullptr ? "as it is" : after_->text());
}

Specs Boundaries::check_forward(Context& ctx, std::span<const Spec> inputs) {
  first_input(inputs, *this);
  Specs x(inputs.begin(), inputs.end());
  if (before_ != nullptr) x[0] = before_->check_forward(ctx, {x.data(), 1})[0];
  Specs y = child(0).check_forward(ctx, x);
  if (after_ != nullptr && !y.empty()) y[0] = after_->check_forward(ctx, {y.data(), 1})[0];
  return y;
}

Values Boundaries::prepared(Context& ctx, std::span<const Tensor> inputs, Frame* frame) const {
  Values x(inputs.begin(), inputs.end());
  if (before_ != nullptr) x.at(0) = before_->forward1(ctx, x[0], frame);
  return x;
}

Values Boundaries::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  Values y = child(0).forward(ctx, prepared(ctx, inputs, frame), frame);
  if (after_ != nullptr) y.at(0) = after_->forward1(ctx, y[0], frame);
  return y;
}

Values Boundaries::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  Values outer(dy.begin(), dy.end());
  if (after_ != nullptr) outer.at(0) = after_->backward1(ctx, outer[0], frame);
  Values dx = child(0).backward(ctx, outer, frame);
  if (before_ != nullptr) dx.at(0) = before_->backward1(ctx, dx[0], frame);
  return dx;
}

PartialSum::PartialSum(std::shared_ptr<Linear> linear, RedistributePtr before, RedistributePtr sum)
    : Boundaries(linear, std::move(before), std::move(sum)), linear_(linear.get()) {}

PartialSum::PartialSum(std::shared_ptr<Embedding> embedding, RedistributePtr before, RedistributePtr sum)
    : Boundaries(embedding, std::move(before), std::move(sum)), embedding_(embedding.get()) {}

Values PartialSum::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  first_input(inputs, *this);
  const Tensor x = prepared(ctx, inputs, frame)[0];
  const Spec input = spec_of(x), part = child(0).check_forward(ctx, {&input, 1})[0];
  const Redistribute::PlanPtr plan = after().forward_plan(part.shape);
  const Tensor y = make_output(ctx, frame, part.dtype, plan->after);  // below the part, which goes first
  const StackScope scope(ctx.temporaries);
  const Tensor own = plan->moves.empty() ? y : ctx.temporaries.allocate(part.dtype, part.shape);
  compute_part(ctx, x, own, frame);
  Redistribute::Started sum = after().start_forward(ctx, own, y);
  after().finish(ctx, sum);
  add_bias(ctx, y);
  return {y};
}

void PartialSum::compute_part(Context& ctx, const Tensor& x, const Tensor& part, Frame* frame) const {
  if (linear_ != nullptr)
    linear_->product(ctx, x, part, frame);
  else
    embedding_->look_up(ctx, x, part, frame);
}

// As a product of ones with the bias.
void PartialSum::add_bias(Context& ctx, const Tensor& y) const {
  if (linear_ == nullptr || linear_->bias() == nullptr) return;
  const Tensor y_TO = y.flatten2(), bias = value_of(*linear_->bias());
  const StackScope scope(ctx.temporaries);
  const Tensor ones = ctx.temporaries.allocate(y.dtype(), Shape{y_TO.dim(0), 1});
  ctx.ops.fill(ones, 1, ctx.stream);
  ctx.ops.gemm(
      {.a = ones, .b = bias.reshape(Shape{1, bias.count()}), .c = y_TO, .bias = {}, .accumulate = true},
      ctx.stream);
}

}  // namespace gangway
