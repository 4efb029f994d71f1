// Feed-forward without a gate, as in GPT-2: down(activation(up(x))).
#include <optional>

#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

enum Part : size_t { kUpProjection, kDownProjection };
constexpr int kUp = 0;      // slot of the frame
constexpr int kHidden = 0;  // index of the tensor that recompute() makes

class PlainMlp final : public Module {
 public:
  PlainMlp(int64_t dim, int64_t ffn, bool bias, Activation activation, double deviation)
      : activation_(activation) {
    add_child("up_proj", make_linear(dim, ffn, bias, deviation));
    add_child("down_proj", make_linear(ffn, dim, bias, deviation));
  }

  const char* kind() const override { return "PlainMlp"; }
  void add_options(CallSignature& signature) const override { signature.add("activation", activation_); }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{
        .steps = {{kUpProjection, {DataFlow::kInput}}, {kDownProjection, {kUpProjection}, {}, true}},
        .output = {kDownProjection}};
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const Specs hidden = child(kUpProjection).check_forward(ctx, inputs);
    return hidden.empty() ? Specs() : child(kDownProjection).check_forward(ctx, hidden);
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor up = child(kUpProjection).forward_one(ctx, first_input(inputs, *this), frame);
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);  // without a frame, temporaries hold the output
    const Tensor hidden = ctx.temporaries.allocate(up.dtype(), up.shape());
    activate(ctx, up, hidden);
    if (frame != nullptr) {
      frame->slots().recomputable(hidden, *this, kHidden, RecomputeWhen::in_backward);
      frame->slots().save(*this, kUp, up);
    }
    return {child(kDownProjection).forward_one(ctx, hidden, frame)};
  }

  // In place: the gradient of `up` is written over its saved value. `hidden`, which the weight half of
  // down_proj reads, is written over its own gradient, which nothing reads afterwards.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor dhidden = child(kDownProjection).backward_one(ctx, first_gradient(dy, *this), frame);
    const Tensor up = frame.slots().load(ctx, *this, kUp);
    const bool again = frame.slots().needs_recompute(*this, kHidden);
    ctx.ops.activation_backward({.x = up.flatten2(),
                                 .dy = dhidden.flatten2(),
                                 .dx = up.flatten2(),
                                 .y = again ? dhidden.flatten2() : Tensor(),
                                 .activation = activation_},
                                ctx.stream);
    if (again) frame.slots().set_recomputed(*this, kHidden, dhidden);
    return {child(kUpProjection).backward_one(ctx, up, frame)};
  }

  Tensor recompute(Context& ctx, Frame& frame, int) override {
    const Tensor up = frame.slots().load(ctx, *this, kUp);
    const Tensor hidden = frame.allocate_gradient(up.dtype(), up.shape());
    activate(ctx, up, hidden);
    return hidden;
  }

 private:
  void activate(Context& ctx, const Tensor& x, const Tensor& y) const {
    ctx.ops.activation({.x = x.flatten2(), .y = y.flatten2(), .activation = activation_}, ctx.stream);
  }

  const Activation activation_;
};

}  // namespace

ModulePtr make_plain_mlp(int64_t dim, int64_t ffn, bool bias, Activation activation, double deviation) {
  return std::make_shared<PlainMlp>(dim, ffn, bias, activation, deviation);
}

}  // namespace gangway
