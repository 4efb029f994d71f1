#include "parallel/recompute.h"

#include <cmath>

namespace gangway {
namespace {

Tensor keep(Context& ctx, const Tensor& tensor, Frame& frame) {
  const Tensor kept = frame.allocate(tensor.dtype(), tensor.shape());
  ctx.ops.cast(tensor, kept, ctx.stream);
  return kept;
}

class Recomputed final : public Module {
 public:
  explicit Recomputed(ModulePtr inner) { add_child("", std::move(inner)); }

  const char* kind() const override { return "Recompute"; }
  bool is_wrapper() const override { return true; }
  bool backward_reads_values() const override { return true; }  // backward runs forward again
  size_t output_count(size_t inputs) const override { return child(0).output_count(inputs); }
  size_t gradient_count() const override { return child(0).gradient_count(); }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    return child(0).check_forward(ctx, inputs);
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    if (frame == nullptr) return child(0).forward(ctx, inputs, nullptr);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]) frame->slots().save(*this, static_cast<int>(i), inputs[i]);
    frame->seen(*this).inputs = dtypes_of(inputs);
    StackScope scope(ctx.temporaries);
    Context first = ctx;
    first.training = true;
    Values outputs = child(0).forward(first, inputs, nullptr);
    for (Tensor& y : outputs)
      if (y) y = keep(ctx, y, *frame);
    return outputs;
  }

  // The gradients of the inputs lie in the nested frame; the caller's compact() moves them out of it.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    Values inputs;
    for (size_t i = 0; i < frame.seen(*this).inputs.size(); ++i) {
      const int slot = static_cast<int>(i);
      inputs.push_back(frame.slots().holds(*this, slot) ? frame.slots().load(ctx, *this, slot) : Tensor());
    }
    Frame& nested = frame.nest();
    Context again = ctx;
    again.training = true;
    again.recomputing = true;
    child(0).forward(again, inputs, &nested);
    return child(0).backward(ctx, dy, nested);
  }
};

}  // namespace

ModulePtr make_recompute(ModulePtr inner) { return std::make_shared<Recomputed>(std::move(inner)); }

std::vector<bool> recomputed_blocks(const RecomputeOptions& options, size_t count) {
  std::vector<bool> chosen(count, false);
  const auto share = static_cast<size_t>(std::lround(options.ratio * static_cast<double>(count)));
  for (size_t i = 0; i < count; ++i) switch (options.kind) {
      case RecomputeKind::none:
      case RecomputeKind::selective: break;
      case RecomputeKind::full: chosen[i] = true; break;
      case RecomputeKind::every: chosen[i] = (i + 1) % static_cast<size_t>(options.every) == 0; break;
      case RecomputeKind::ratio: chosen[i] = (i + 1) * share / count > i * share / count; break;
    }
  return chosen;
}

}  // namespace gangway
