// The part of attention between its projections: {q, k, v} -> {out}, softmax(scale q k^T + mask) v for each
// head. It is a child of every attention layer ("core_attention"); its only parameter, if it has one, is
// "sinks". This class runs the operation on one device; context parallelism replaces it by a subclass that
// attends to keys of other ranks. Queries see keys of their own document only (Context::documents).
//
// q and out are [B, S, H, K], k and v [B, S, G, K]; q and k are rotated. With a frame it saves q, k, v, out
// and lse. Where q, k and v are columns of one tensor [B, S, N] (Projected), their gradients are, too.
//
// Thread rule: that of a module.
#pragma once

#include <memory>

#include "nn/documents.h"
#include "nn/module.h"

namespace gangway {

// q, k and v as columns of one tensor [B, S, N], in this order.
struct Projected {
  Tensor q, k, v;
  static Projected split(const Tensor& all, int64_t heads, int64_t kv_heads, int64_t head_dim);
  Tensor joined() const;  // that tensor; absent: they are not
};

struct AttentionCoreOptions {
  int64_t heads = 1, kv_heads = 1;  // of the whole layer, not of this rank's part
  double scale = 1;
  bool causal = true;
  int64_t window = 0;  // query i sees key j if i - j < window; 0: none
  double cap = 0;      // scores become cap tanh(score / cap); 0: they do not
  bool sinks = false;  // one learned score per query head, a parameter "sinks" [heads]
};

class AttentionCore : public Module {
 public:
  // `part`: the part of a sequence that this rank has. INVALID_ARGUMENT: window or cap is out of range.
  explicit AttentionCore(const AttentionCoreOptions& options, SequencePart part = {});

  const AttentionCoreOptions& options() const { return options_; }
  // Whether q, k, v and their gradients may be columns of one tensor.
  virtual bool takes_columns() const { return true; }

  const char* kind() const override { return "AttentionCore"; }
  void add_options(CallSignature& signature) const override;
  size_t gradient_count() const override { return 3; }
  // Its output lies as q does.
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {}, .output = {DataFlow::kInput}, .mixes_tokens = true};
  }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) final;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) final;

  Values tables() const override { return alone_.made(); }

 protected:
  // The documents of the context, or rows of one document each.
  const Documents& documents(const Context& ctx) const {
    return ctx.documents == nullptr ? alone_ : *ctx.documents;
  }
  KeyMask mask() const { return {options_.window, options_.causal}; }
  // The ranges that attend and attend_backward get in their arguments.
  virtual KeyRanges key_ranges(Context& ctx, int64_t tokens) const {
    return documents(ctx).of_own_queries(ctx, tokens, mask());
  }
  // Writes out and lse. Nothing but attend_backward reads lse, so that a subclass chooses the order of its
  // elements: lse is contiguous and as large as [B, H, S].
  virtual void attend(Context& ctx, const AttentionArgs& args);
  // Writes dq, dk and dv. A subclass may run weight tasks of `frame` while it waits for other ranks.
  virtual void attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame);

 private:
  Tensor sinks_as(Context& ctx, DType dtype) const;  // absent: there are none

  const AttentionCoreOptions options_;
  const Documents alone_;  // for a context without documents
};

// Computes the backward, with the workspace that the device wants for it in the context's temporaries.
void attention_backward(Context& ctx, AttentionBackwardArgs args);

}  // namespace gangway
