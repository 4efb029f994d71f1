// The head of a language model: final norm, output projection, cross-entropy. It adds nothing to parameter
// names.
//
// Thread rule: that of the model.
#pragma once

#include <memory>

#include "nn/layers.h"

namespace gangway {

constexpr int64_t kIgnoredLabel = -100;

// Computes the loss of a head. This class runs the operation of one device; parallelism sets a subclass that
// knows which part of the tokens and of the output weight this device has.
class HeadLoss {
 public:
  virtual ~HeadLoss() = default;
  virtual const char* name() const { return "one device"; }
  // INVALID_ARGUMENT: labels that are not i64, or not one for each token of y [.., D].
  virtual void check(const Spec& y, const Spec& labels);
  // The same as Ops::head_loss, but x and dx are [.., D]. Frees the temporaries that it takes before it
  // returns.
  virtual void run(Context& ctx, const HeadLossArgs& args);
};

// The head as a module, with children "model.norm" and "lm_head". forward({x}) returns {logits} and takes no
// frame; forward({x, labels}) returns {loss, weight}, and with ctx.log_probs, without a frame, also the
// log-probability of each label, in the shape of the labels. forward({x, labels, weights}) weighs the tokens
// (LossTerms): weights are f32 or f64, one for each label.
class LmHead final : public Module {
 public:
  LmHead(int64_t dim, int64_t vocab, double eps, double deviation, double logit_cap, double norm_offset);

  enum Part : size_t { kNorm, kOutput };  // indices of the children

  // Call it between forwards only. `loss` is not null.
  void set_loss(std::shared_ptr<HeadLoss> loss) { loss_ = std::move(loss); }
  const std::shared_ptr<HeadLoss>& loss() const { return loss_; }

  const char* kind() const override { return "LmHead"; }
  void add_options(CallSignature& signature) const override {
    signature.add("loss", loss_->name());
    signature.add("logit_cap", logit_cap_);
  }
  bool reads_child_parameters() const override { return true; }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {{kNorm, {DataFlow::kInput}}, {kOutput, {kNorm}}}, .output = {kOutput}};
  }
  size_t output_count(size_t inputs) const override { return inputs > 1 ? 2 : 1; }
  std::vector<IdRule> id_rules() const override;

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  // Ignores dy: the gradient of the loss is ctx.loss_scale. Computes the logits, again or (with
  // ctx.fused_loss) for the first time.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

 private:
  Parameter& output_weight() const;
  DType wide_dtype() const;  // of weights and log-probabilities
  Tensor as_output(Context& ctx, const Tensor& y) const;
  void cap(Context& ctx, const Tensor& logits) const;
  HeadLossArgs loss_of(Context& ctx, const Tensor& y, const Tensor& labels, const Tensor& weights) const;

  const double logit_cap_;
  std::shared_ptr<HeadLoss> loss_;
};

// `logit_cap` above 0: logits become cap tanh(logit / cap). `norm_offset`: of the norm's weights.
ModulePtr make_head(int64_t dim, int64_t vocab, double eps, double deviation, double logit_cap = 0,
                    double norm_offset = 0);

}  // namespace gangway
