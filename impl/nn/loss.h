// The unnamed last part of a language model: final norm, output product, cross-entropy.
// Thread rule: that of the model.
#pragma once

#include <memory>

#include "nn/layers.h"

namespace gangway {

constexpr int64_t kIgnoredLabel = -100;

// How a head makes its loss. Here it is the operation of one device; parallelism gives a head another, which knows what
// part of the tokens and of the output weight this device has.
class HeadLoss {
 public:
  virtual ~HeadLoss() = default;
  virtual const char* name() const { return "one device"; }
  // INVALID_ARGUMENT: labels that are not those of y [.., D].
  virtual void check(const Spec& y, const Spec& labels);
  // As Ops::head_loss, but x and dx are [.., D]. Temporaries are taken inside of a scope of its own.
  virtual void run(Context& ctx, const HeadLossArgs& args);
};

// Children "model.norm" and "lm_head". forward({x}) -> {logits}, null frame only; forward({x, labels}) ->
// {loss, weight}.
class LmHead final : public Module {
 public:
  LmHead(int64_t dim, int64_t vocab, double eps, double deviation);

  enum Part : size_t { kNorm, kOutput };  // children

  // Between forwards; never null.
  void set_loss(std::shared_ptr<HeadLoss> loss) { loss_ = std::move(loss); }
  const std::shared_ptr<HeadLoss>& loss() const { return loss_; }

  const char* kind() const override { return "LmHead"; }
  void add_options(Facts& facts) const override { facts.add("loss", loss_->name()); }
  bool computes_children() const override { return true; }
  size_t output_count(size_t inputs) const override { return inputs > 1 ? 2 : 1; }
  std::vector<IdRule> id_rules() const override;

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override;
  // dy is not asked: the gradient of the loss is ctx.loss_scale. The logits are made again, or for the first time.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override;

 private:
  Parameter& output_weight() const;
  Tensor as_output(Context& ctx, const Tensor& y) const;
  HeadLossArgs loss_of(Context& ctx, const Tensor& y, const Tensor& labels) const;

  std::shared_ptr<HeadLoss> loss_;
};

ModulePtr make_head(int64_t dim, int64_t vocab, double eps, double deviation);

}  // namespace gangway
