// Letters: T tokens, D model width, V vocabulary.
#include "nn/loss.h"

#include "nn/gradient.h"

namespace gangway {
namespace {

// Slots of the frame: the norm's output and the labels; with a fused loss also the loss and its weight, which
// backward writes.
enum Slot : int { kY, kLabels, kLoss, kWeight };

Tensor as_dtype(Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor converted = ctx.temporaries.allocate(dtype, x.shape());
  ctx.ops.cast(x, converted, ctx.stream);
  return converted;
}

void check_labels_given(bool given, bool with_frame) {
  if (!given && with_frame) fail(Code::invalid_argument, "logits have no backward: give labels, or no frame");
}

}  // namespace

void HeadLoss::check(const Spec& y, const Spec& labels) {
  const int64_t tokens = y.shape.count() / y.shape.back();
  if (labels.dtype != DType::i64 || labels.shape.count() != tokens)
    fail(Code::invalid_argument, "labels are ", labels.text(), ", wanted i64, one for each of ", tokens,
         " tokens");
}

void HeadLoss::run(Context& ctx, const HeadLossArgs& args) {
  HeadLossArgs flat = args;
  flat.x = args.x.flatten2();
  if (args.dx) flat.dx = args.dx.flatten2();
  ctx.ops.head_loss(flat, ctx.temporaries, ctx.stream);
}

LmHead::LmHead(int64_t dim, int64_t vocab, double eps, double deviation, double norm_offset)
    : loss_(std::make_shared<HeadLoss>()) {
  add_child("model.norm", make_rmsnorm(dim, eps, false, norm_offset));
  add_child("lm_head", make_linear(dim, vocab, false, deviation));
  output_weight().rows_are_ids = true;
}

std::vector<IdRule> LmHead::id_rules() const {
  return {{}, {"label", output_weight().shape[0], kIgnoredLabel}};
}

Specs LmHead::check_forward(Context& ctx, std::span<const Spec> inputs) {
  const Spec& x = first_input(inputs, *this);
  check_labels_given(inputs.size() > 1, ctx.training);
  if (inputs.size() > 1) loss_->check(x, inputs[1]);
  const Specs norm = child(kNorm).check_forward(ctx, {&x, 1});
  if (inputs.size() > 1) return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  if (norm.empty()) return {};
  const Spec y{spec_of(output_weight()).dtype, norm[0].shape};
  return child(kOutput).check_forward(ctx, {&y, 1});
}

Values LmHead::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor& x = first_input(inputs, *this);
  check_labels_given(inputs.size() > 1, frame != nullptr);
  if (inputs.size() == 1) {
    const Tensor y = child(kNorm).forward_one(ctx, x, nullptr);
    return {child(kOutput).forward_one(ctx, as_output(ctx, y), nullptr)};
  }
  const Tensor& labels = inputs[1];
  loss_->check(spec_of(x), spec_of(labels));
  const Tensor loss = make_output(ctx, frame, DType::f64, Shape{1});
  const Tensor weight = make_output(ctx, frame, DType::f64, Shape{1});
  ctx.ops.fill(loss, 0, ctx.stream);
  ctx.ops.fill(weight, 0, ctx.stream);
  const StackScope scope(ctx.temporaries);
  const Tensor y = child(kNorm).forward_one(ctx, x, frame);
  if (frame != nullptr) {
    frame->slots().save(*this, kY, y);
    frame->slots().save(*this, kLabels, labels);
    if (ctx.fused_loss) {
      frame->slots().save(*this, kLoss, loss);
      frame->slots().save(*this, kWeight, weight);
      return {loss, weight};
    }
  }
  HeadLossArgs args = loss_of(ctx, y, labels);
  args.loss = loss;
  args.weight = weight;
  loss_->run(ctx, args);
  return {loss, weight};
}

Values LmHead::backward(Context& ctx, std::span<const Tensor>, Frame& frame) {
  const Tensor y = frame.slots().load(ctx, *this, kY);
  // The gradient that the norm takes may end with this scope: the norm has no weight task that reads it
  // later.
  const StackScope scope(ctx.temporaries);
  HeadLossArgs args = loss_of(ctx, y, frame.slots().load(ctx, *this, kLabels));
  if (frame.slots().holds(*this, kLoss)) {
    args.loss = frame.slots().load(ctx, *this, kLoss);
    args.weight = frame.slots().load(ctx, *this, kWeight);
  }
  args.dx = ctx.temporaries.allocate(args.x.dtype(), args.x.shape());
  if (wants_gradient(output_weight())) {
    const GradientTarget target = gradient_to_write(output_weight());
    args.dw = target.grad;
    args.dw_accumulate = target.accumulate;
  }
  loss_->run(ctx, args);
  return {child(kNorm).backward_one(ctx, as_dtype(ctx, args.dx, y.dtype()), frame)};
}

Parameter& LmHead::output_weight() const { return *unwrapped(child(kOutput)).parameters()[0]; }

// Returns y in the dtype of the output weight: a rule for compute dtypes may give the head another dtype than
// the norm.
Tensor LmHead::as_output(Context& ctx, const Tensor& y) const {
  return as_dtype(ctx, y, value_of(output_weight()).dtype());
}

HeadLossArgs LmHead::loss_of(Context& ctx, const Tensor& y, const Tensor& labels) const {
  return {.x = as_output(ctx, y),
          .w = value_of(output_weight()),
          .labels = labels.reshape(Shape{labels.count()}),
          .loss = {},
          .weight = {},
          .dx = {},
          .dw = {},
          .scale = ctx.loss_scale,
          .ignore = kIgnoredLabel};
}

ModulePtr make_head(int64_t dim, int64_t vocab, double eps, double deviation, double norm_offset) {
  return std::make_shared<LmHead>(dim, vocab, eps, deviation, norm_offset);
}

}  // namespace gangway
