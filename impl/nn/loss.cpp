// Letters: T tokens, D model width, V vocabulary.
#include "nn/loss.h"

#include "nn/gradient.h"
#include "nn/kv_cache.h"

namespace gangway {
namespace {

// Slots of the frame: the norm's output, the labels and the weights of tokens, if there are any; with a fused
// loss also the loss and its weight, which backward writes.
enum Slot : int { kY, kLabels, kLoss, kWeight, kTokenWeights };

void check_weights(const Spec& labels, const Spec& weights) {
  const bool real = weights.dtype == DType::f32 || weights.dtype == DType::f64;
  if (!real || weights.shape.count() != labels.shape.count())
    fail(Code::invalid_argument, "the weights of tokens are ", weights.text(),
         ", wanted f32 or f64, one for each label of ", labels.text());
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

LmHead::LmHead(int64_t dim, int64_t vocab, double eps, double deviation, double logit_cap, double norm_offset)
    : logit_cap_(logit_cap), loss_(std::make_shared<HeadLoss>()) {
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
  if (inputs.size() > 2) check_weights(inputs[1], inputs[2]);
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
    if (ctx.cache != nullptr && !ctx.cache->wants_logits()) return {x};  // only the layers' caches are wanted
    const Tensor y = child(kNorm).forward_one(ctx, x, nullptr);
    const Tensor logits = child(kOutput).forward_one(ctx, as_output(ctx, y), nullptr);
    if (logit_cap_ > 0) cap(ctx, logits);
    return {logits};
  }
  const Tensor& labels = inputs[1];
  const Tensor weights = inputs.size() > 2 ? inputs[2] : Tensor();
  loss_->check(spec_of(x), spec_of(labels));
  if (weights) check_weights(spec_of(labels), spec_of(weights));
  const Tensor loss = make_output(ctx, frame, DType::f64, Shape{1});
  const Tensor weight = make_output(ctx, frame, DType::f64, Shape{1});
  Values outputs{loss, weight};
  if (ctx.log_probs && frame == nullptr)
    outputs.push_back(ctx.temporaries.allocate(wide_dtype(), labels.shape()));
  ctx.ops.fill(loss, 0, ctx.stream);
  ctx.ops.fill(weight, 0, ctx.stream);
  const StackScope scope(ctx.temporaries);
  const Tensor y = child(kNorm).forward_one(ctx, x, frame);
  if (frame != nullptr) {
    frame->slots().save(*this, kY, y);
    frame->slots().save(*this, kLabels, labels);
    if (weights) frame->slots().save(*this, kTokenWeights, weights);
    if (ctx.fused_loss) {
      frame->slots().save(*this, kLoss, loss);
      frame->slots().save(*this, kWeight, weight);
      return outputs;
    }
  }
  HeadLossArgs args = loss_of(ctx, y, labels, weights);
  args.loss = loss;
  args.weight = weight;
  if (outputs.size() > 2) args.terms.log_probs = outputs[2].reshape(Shape{labels.count()});
  loss_->run(ctx, args);
  return outputs;
}

Values LmHead::backward(Context& ctx, std::span<const Tensor>, Frame& frame) {
  const Tensor y = frame.slots().load(ctx, *this, kY);
  // The gradient that the norm takes may end with this scope: the norm has no weight task that reads it
  // later.
  const StackScope scope(ctx.temporaries);
  const Tensor weights =
      frame.slots().holds(*this, kTokenWeights) ? frame.slots().load(ctx, *this, kTokenWeights) : Tensor();
  HeadLossArgs args = loss_of(ctx, y, frame.slots().load(ctx, *this, kLabels), weights);
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

// Returns y in the dtype of the output weight, which may differ from that of the norm.
Tensor LmHead::as_output(Context& ctx, const Tensor& y) const {
  return as_dtype(ctx, y, value_of(output_weight()).dtype());
}

DType LmHead::wide_dtype() const { return statistics_dtype(spec_of(output_weight()).dtype); }

void LmHead::cap(Context& ctx, const Tensor& logits) const {
  ctx.ops.scale(logits, 1 / logit_cap_, ctx.stream);
  ctx.ops.activation({.x = logits.flatten2(), .y = logits.flatten2(), .activation = Activation::tanh},
                     ctx.stream);
  ctx.ops.scale(logits, logit_cap_, ctx.stream);
}

HeadLossArgs LmHead::loss_of(Context& ctx, const Tensor& y, const Tensor& labels,
                             const Tensor& weights) const {
  LossTerms terms{.cap = logit_cap_,
                  .weights = {},
                  .label_smoothing = ctx.label_smoothing,
                  .z_loss = ctx.z_loss,
                  .log_probs = {}};
  if (weights) terms.weights = as_dtype(ctx, weights, wide_dtype()).reshape(Shape{weights.count()});
  return {.x = as_output(ctx, y),
          .w = value_of(output_weight()),
          .labels = labels.reshape(Shape{labels.count()}),
          .loss = {},
          .weight = {},
          .dx = {},
          .dw = {},
          .scale = ctx.loss_scale,
          .ignore = kIgnoredLabel,
          .terms = terms};
}

ModulePtr make_head(int64_t dim, int64_t vocab, double eps, double deviation, double logit_cap,
                    double norm_offset) {
  return std::make_shared<LmHead>(dim, vocab, eps, deviation, logit_cap, norm_offset);
}

}  // namespace gangway
