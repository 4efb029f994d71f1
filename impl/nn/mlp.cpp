// Gated feed-forward. Letters: T tokens, F feed-forward width.
#include <array>
#include <optional>
#include <utility>

#include "nn/gradient.h"
#include "nn/joined_linears.h"
#include "nn/layers.h"

namespace gangway {
namespace {

enum Part : size_t { kGateProjection, kUpProjection, kDownProjection };
enum Slot : int { kGate, kUp, kInput };
constexpr int kHidden = 0;     // index of the tensor that recompute() makes
constexpr int kGateAndUp = 0;  // the only weight task

class Mlp final : public Module {
 public:
  Mlp(int64_t dim, int64_t ffn, bool bias, double deviation, Activation activation)
      : activation_(activation), gate_and_up_(*this, {kGateProjection, kUpProjection}, kInput, kGateAndUp) {
    add_child("gate_proj", make_linear(dim, ffn, bias, deviation));
    add_child("up_proj", make_linear(dim, ffn, bias, deviation));
    add_child("down_proj", make_linear(ffn, dim, bias, deviation));
  }

  const char* kind() const override { return "Mlp"; }
  void add_options(CallSignature& signature) const override { signature.add("activation", activation_); }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {{kGateProjection, {DataFlow::kInput}},
                              {kUpProjection, {DataFlow::kInput}},
                              {kDownProjection, {kGateProjection, kUpProjection}, {}, true}},
                    .output = {kDownProjection}};
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    child(kUpProjection).check_forward(ctx, inputs);
    const Specs hidden = child(kGateProjection).check_forward(ctx, inputs);
    return hidden.empty() ? Specs() : child(kDownProjection).check_forward(ctx, hidden);
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    const auto [gate, up] = projected(ctx, x, frame);
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);  // without a frame, temporaries hold the output
    const Tensor hidden = ctx.temporaries.allocate(gate.dtype(), gate.shape());
    multiply(ctx, gate, up, hidden);
    if (frame != nullptr) {
      frame->slots().recomputable(hidden, *this, kHidden, RecomputeWhen::in_backward);
      frame->slots().save(*this, kGate, gate);
      frame->slots().save(*this, kUp, up);
    }
    return {child(kDownProjection).forward_one(ctx, hidden, frame)};
  }

  // In place: the gradients of gate and up are written over their saved values. `hidden`, which the weight
  // half of down_proj reads, is written over its own gradient, which nothing reads afterwards.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor dhidden = child(kDownProjection).backward_one(ctx, first_gradient(dy, *this), frame);
    const Tensor gate = frame.slots().load(ctx, *this, kGate);
    const Tensor up = frame.slots().load(ctx, *this, kUp);
    const bool again = frame.slots().needs_recompute(*this, kHidden);
    ctx.ops.swiglu_backward({.gate = gate.flatten2(),
                             .up = up.flatten2(),
                             .dy = dhidden.flatten2(),
                             .dgate = gate.flatten2(),
                             .dup = up.flatten2(),
                             .y = again ? dhidden.flatten2() : Tensor(),
                             .activation = activation_},
                            ctx.stream);
    if (again) frame.slots().set_recomputed(*this, kHidden, dhidden);
    if (gate_and_up_.joined(frame))
      return {gate_and_up_.backward(ctx, joined_columns(std::array{gate, up}), frame)};
    const Tensor dx = child(kGateProjection).backward_one(ctx, gate, frame);
    child(kUpProjection).add_backward_one(ctx, up, frame, dx);
    return {dx};
  }

  void backward_weight(Context& ctx, Frame& frame, int, const Tensor& dy) override {
    gate_and_up_.backward_weight(ctx, frame, dy);
  }

  Tensor recompute(Context& ctx, Frame& frame, int) override {
    const Tensor gate = frame.slots().load(ctx, *this, kGate);
    const Tensor hidden = frame.allocate_gradient(gate.dtype(), gate.shape());
    multiply(ctx, gate, frame.slots().load(ctx, *this, kUp), hidden);
    return hidden;
  }

 private:
  std::pair<Tensor, Tensor> projected(Context& ctx, const Tensor& x, Frame* frame) {
    if (gate_and_up_.can_join(ctx, x)) {
      const Tensor both = gate_and_up_.forward(ctx, x, frame);
      const int64_t width = gate_and_up_.width(0);
      return {columns(both, 0, width), columns(both, width, both.dim(-1))};
    }
    const Tensor gate = child(kGateProjection).forward_one(ctx, x, frame);
    return {gate, child(kUpProjection).forward_one(ctx, x, frame)};
  }

  void multiply(Context& ctx, const Tensor& gate, const Tensor& up, const Tensor& y) const {
    ctx.ops.swiglu(
        {.gate = gate.flatten2(), .up = up.flatten2(), .y = y.flatten2(), .activation = activation_},
        ctx.stream);
  }

  const Activation activation_;
  const JoinedLinears gate_and_up_;
};

}  // namespace

ModulePtr make_mlp(int64_t dim, int64_t ffn, bool bias, double deviation, Activation activation) {
  return std::make_shared<Mlp>(dim, ffn, bias, deviation, activation);
}

}  // namespace gangway
