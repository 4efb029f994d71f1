// Pre-norm block. Letters: T tokens, D model width, H query heads, G key/value heads, K head width, F
// feed-forward width.
//
// A forward with a frame saves this many bytes, with e bytes for an element and s bytes for a statistic (4,
// or 8 for f64), every tensor rounded up to 64 bytes:
//   e T (2 D + 2 H K + 2 G K + 2 F) + s T (2 + H)
//     2 D    output of attention (the residual sum is written over it) and of the mlp (the block's output is)
//     2 H K  q and the heads' output
//     2 G K  k and v
//     2 F    gate and up
//     2 + H  rstd of the two norms, and lse
// Norms of q and k add e T (H + G) K + s T (H + G). The outputs of the other norms and of SwiGLU are
// recomputed in their backward.
#include <optional>

#include "nn/attention.h"
#include "nn/gradient.h"

namespace gangway {
namespace {

enum Part : size_t { kInputNorm, kAttention, kPostNorm, kMlp };

class LayerBlock final : public Module {
 public:
  LayerBlock(const BlockOptions& o, std::shared_ptr<RopeTable> table) {
    add_child("input_layernorm", make_rmsnorm(o.dim, o.eps, true));
    add_child("self_attn", make_attention(o, std::move(table)));
    add_child("post_attention_layernorm", make_rmsnorm(o.dim, o.eps, true));
    add_child("mlp", make_mlp(o.dim, o.ffn, o.mlp_bias, o.deviation));
  }

  const char* kind() const override { return "Block"; }
  bool is_block() const override { return true; }
  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {{kInputNorm, {DataFlow::kInput}},
                              {kAttention, {kInputNorm}},
                              {kPostNorm, {kAttention, DataFlow::kInput}},
                              {kMlp, {kPostNorm}}},
                    .output = {kMlp, kPostNorm}};
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    const Specs norm = child(kInputNorm).check_forward(ctx, {&x, 1});
    if (norm.empty()) return {};
    const Specs attention = child(kAttention).check_forward(ctx, {norm.data(), 1});
    if (attention.empty()) return {};
    const Spec both[] = {attention[0], x};
    const Specs post = child(kPostNorm).check_forward(ctx, both);
    return post.empty() ? Specs() : child(kMlp).check_forward(ctx, {post.data(), 1});
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);  // without a frame, temporaries hold the output
    const Tensor both[] = {attention(ctx, x, frame), x};
    const Values post = child(kPostNorm).forward(ctx, both, frame);
    const Tensor out = child(kMlp).forward_one(ctx, post[0], frame);
    ctx.ops.add(post[1], 1, out, ctx.stream);
    return {out};
  }

  // The gradient of the residual stream enters both norms as dsum: the norm adds it in the pass that makes
  // its own gradient.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor post[] = {child(kMlp).backward_one(ctx, first_gradient(dy, *this), frame), dy[0]};
    const Tensor dsum = child(kPostNorm).backward(ctx, post, frame)[0];
    const Tensor input[] = {child(kAttention).backward_one(ctx, dsum, frame), dsum};
    return {child(kInputNorm).backward(ctx, input, frame)[0]};
  }

 private:
  // A separate scope, so that the norm's output takes no memory while the mlp runs.
  Tensor attention(Context& ctx, const Tensor& x, Frame* frame) {
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);
    return child(kAttention).forward_one(ctx, child(kInputNorm).forward_one(ctx, x, frame), frame);
  }
};

}  // namespace

ModulePtr make_block(const BlockOptions& options, std::shared_ptr<RopeTable> table) {
  return std::make_shared<LayerBlock>(options, std::move(table));
}

ModulePtr make_block(const BlockOptions& options) {
  return make_block(options, std::make_shared<RopeTable>(options.rope, checked_head_dim(options)));
}

}  // namespace gangway
