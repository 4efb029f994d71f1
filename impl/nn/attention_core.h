// The part of attention between its projections: {q, k, v} -> {out}, softmax(scale q k^T + mask) v on heads. A child of
// every attention layer ("core_attention"), without parameters. Here it is the operation on one device; parallelism
// puts another in its place that attends to keys of other ranks.
//
// q, out [B, S, H, K], k and v [B, S, G, K], rotated. Saved with a frame: q, k, v, out and lse.
//
// Thread rule: that of a module.
#pragma once

#include <memory>

#include "nn/module.h"

namespace gangway {

struct AttentionCoreOptions {
  int64_t heads = 1, kv_heads = 1;  // of the whole layer
  double scale = 1;
  bool causal = true;
};

class AttentionCore : public Module {
 public:
  explicit AttentionCore(const AttentionCoreOptions& options) : options_(options) {}

  const AttentionCoreOptions& options() const { return options_; }

  const char* kind() const override { return "AttentionCore"; }
  void add_options(Facts& facts) const override { facts.add("causal", options_.causal); }
  size_t gradient_count() const override { return 3; }
  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override;
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) final;
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) final;

  // Where the tokens of the inputs stand in the sequence, for the rotary angles of q and k.
  struct Positions {
    int64_t count = 0;  // positions are below it
    Tensor rows;        // i32 [S]; absent: 0, 1, 2, ...
  };
  virtual Positions positions(Context&, int64_t tokens) { return {tokens, {}}; }

 protected:
  // lse is this object's own from attend to attend_backward: contiguous, as large as [B, H, S], in any order.
  virtual void attend(Context& ctx, const AttentionArgs& args);
  // Writes dq, dk and dv. While it waits it may run weight tasks of `frame`.
  virtual void attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame);

 private:
  const AttentionCoreOptions options_;
};

}  // namespace gangway
