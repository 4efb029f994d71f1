// Blocks of attention and an mlp with norms before, after, or on both sides of each half. Letters: T tokens,
// D model width, H query heads, G key/value heads, K head width, F feed-forward width.
//
// A forward with a frame saves this many bytes, with e bytes for an element and s bytes for a statistic (4,
// or 8 for f64), every tensor rounded up to 64 bytes. With norms before the halves:
//   e T (2 D + 2 H K + 2 G K + 2 F) + s T (2 + H)
//     2 D    output of attention (the residual sum is written over it) and of the mlp (the block's output is)
//     2 H K  q and the heads' output
//     2 G K  k and v
//     2 F    gate and up; F without a gate
//     2 + H  rstd of the two norms, and lse
// Norms of q and k add e T (H + G) K + s T (H + G), or e T (H + G) K + 2 s T if they are over the whole
// width. The outputs of the other norms and of the mlp's product are recomputed in their backward. Norms
// after the halves save 2 e T D more: their inputs are outputs of the halves, and their outputs become the
// residual sums. Norms on both sides also save 2 s T more.
// Each layer norm saves s T more than an RMS norm, its means. Dropouts of the halves save nothing: they are
// written over the halves' outputs.
#include <optional>

#include "nn/attention.h"
#include "nn/gradient.h"

namespace gangway {
namespace {

ModulePtr norm_of(const BlockOptions& o, bool owns_gradient) {
  return o.layer_norm ? make_layernorm(o.dim, o.eps, owns_gradient)
                      : make_rmsnorm(o.dim, o.eps, owns_gradient, o.norm_offset);
}
ModulePtr mlp_of(const BlockOptions& o) {
  return o.gated_mlp ? make_mlp(o.dim, o.ffn, o.mlp_bias, o.deviation, o.activation)
                     : make_plain_mlp(o.dim, o.ffn, o.mlp_bias, o.activation, o.deviation);
}

class Block : public Module {
 public:
  const char* kind() const override { return "Block"; }
  bool is_block() const override { return true; }

 protected:
  // Each of these runs in a scope of its own, so that temporaries of the first do not take memory while the
  // second runs. Without a frame, temporaries hold the output.
  Tensor chained(Context& ctx, size_t first, size_t second, const Tensor& x, Frame* frame) {
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);
    return child(second).forward_one(ctx, child(first).forward_one(ctx, x, frame), frame);
  }
  // Returns x + y. y is an output of a norm, and nothing else reads it; the sum is written over it.
  static Tensor added(Context& ctx, const Tensor& x, const Tensor& y, Frame* frame) {
    const Tensor sum = frame == nullptr ? y : frame->slots().kept(ctx, y);
    ctx.ops.add(x, 1, sum, ctx.stream);
    return sum;
  }
};

// Returns the outputs' specs of modules that run one after the other; empty if one does not know its own.
Specs check_chain(Context& ctx, const Module& block, std::span<const size_t> parts, const Spec& x) {
  Specs last{x};
  for (const size_t part : parts) {
    last = block.child(part).check_forward(ctx, {last.data(), 1});
    if (last.empty()) return {};
    last.resize(1);  // a norm's second output is the sum that it normed
  }
  return last;
}

// --- norms before the halves ------------------------------------------------------------------------------

class PreNormBlock final : public Block {
 public:
  PreNormBlock(const BlockOptions& o, std::shared_ptr<RopeTable> table) {
    add_child("input_layernorm", norm_of(o, true));
    add_child("self_attn", make_attention(o, std::move(table)));
    add_child("post_attention_layernorm", norm_of(o, true));
    add_child("mlp", mlp_of(o));
    if (o.residual_dropout == 0) return;
    add_child("self_attn_dropout", make_dropout(o.residual_dropout, /*owns_input=*/true));
    add_child("mlp_dropout", make_dropout(o.residual_dropout, /*owns_input=*/true));
  }

  std::optional<DataFlow> data_flow() const override {
    DataFlow flow{.steps = {{kInputNorm, {DataFlow::kInput}}, {kAttention, {kInputNorm}}}, .output = {}};
    if (has_dropout()) flow.steps.push_back({kAttentionDropout, {kAttention}});
    flow.steps.push_back({kPostNorm, {has_dropout() ? kAttentionDropout : kAttention, DataFlow::kInput}});
    flow.steps.push_back({kMlp, {kPostNorm}});
    if (has_dropout()) flow.steps.push_back({kMlpDropout, {kMlp}});
    flow.output = {has_dropout() ? kMlpDropout : kMlp, kPostNorm};
    return flow;
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    const size_t parts[] = {kInputNorm, kAttention};
    const Specs attention = check_chain(ctx, *this, parts, x);
    if (attention.empty()) return {};
    const Spec both[] = {attention[0], x};
    const Specs post = child(kPostNorm).check_forward(ctx, both);
    return post.empty() ? Specs() : child(kMlp).check_forward(ctx, {post.data(), 1});
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);
    const Tensor attention = chained(ctx, kInputNorm, kAttention, x, frame);
    const Tensor both[] = {dropped(ctx, kAttentionDropout, attention, frame), x};
    const Values post = child(kPostNorm).forward(ctx, both, frame);
    const Tensor out = dropped(ctx, kMlpDropout, child(kMlp).forward_one(ctx, post[0], frame), frame);
    ctx.ops.add(post[1], 1, out, ctx.stream);
    return {out};
  }

  // The gradient of the residual stream enters both norms as dsum: the norm adds it in the pass that makes
  // its own gradient.
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor dmlp = dropped_backward(ctx, kMlpDropout, first_gradient(dy, *this), frame);
    const Tensor post[] = {child(kMlp).backward_one(ctx, dmlp, frame), dy[0]};
    const Tensor dsum = child(kPostNorm).backward(ctx, post, frame)[0];
    const Tensor dattention = dropped_backward(ctx, kAttentionDropout, dsum, frame);
    const Tensor input[] = {child(kAttention).backward_one(ctx, dattention, frame), dsum};
    return {child(kInputNorm).backward(ctx, input, frame)[0]};
  }

 private:
  enum Part : size_t { kInputNorm, kAttention, kPostNorm, kMlp, kAttentionDropout, kMlpDropout };

  bool has_dropout() const { return children().size() > kAttentionDropout; }
  Tensor dropped(Context& ctx, size_t dropout, const Tensor& x, Frame* frame) const {
    return has_dropout() ? child(dropout).forward_one(ctx, x, frame) : x;
  }
  Tensor dropped_backward(Context& ctx, size_t dropout, const Tensor& dy, Frame& frame) const {
    return has_dropout() ? child(dropout).backward_one(ctx, dy, frame) : dy;
  }
};

// --- norms after the halves -------------------------------------------------------------------------------

class PostNormBlock final : public Block {
 public:
  PostNormBlock(const BlockOptions& o, std::shared_ptr<RopeTable> table) {
    add_child("self_attn", make_attention(o, std::move(table)));
    add_child("post_attention_layernorm", norm_of(o, false));
    add_child("mlp", mlp_of(o));
    add_child("post_feedforward_layernorm", norm_of(o, false));
  }

  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {{kAttention, {DataFlow::kInput}},
                              {kAttentionNorm, {kAttention}},
                              {kMlp, {kAttentionNorm, DataFlow::kInput}},
                              {kMlpNorm, {kMlp}}},
                    .output = {kMlpNorm, kAttentionNorm, DataFlow::kInput}};
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const size_t parts[] = {kAttention, kAttentionNorm, kMlp, kMlpNorm};
    return check_chain(ctx, *this, parts, first_input(inputs, *this));
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);
    const Tensor middle = half(ctx, kAttention, x, frame);
    return {half(ctx, kMlp, middle, frame)};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor dmiddle = half_backward(ctx, kMlp, first_gradient(dy, *this), frame);
    return {half_backward(ctx, kAttention, dmiddle, frame)};
  }

 private:
  enum Part : size_t { kAttention, kAttentionNorm, kMlp, kMlpNorm };  // each half and then its norm

  Tensor half(Context& ctx, size_t part, const Tensor& x, Frame* frame) {
    const Tensor y = child(part).forward_one(ctx, x, frame);
    return added(ctx, x, child(part + 1).forward_one(ctx, y, frame), frame);
  }
  Tensor half_backward(Context& ctx, size_t part, const Tensor& dy, Frame& frame) {
    const Tensor dx = child(part).backward_one(ctx, child(part + 1).backward_one(ctx, dy, frame), frame);
    ctx.ops.add(dy, 1, dx, ctx.stream);
    return dx;
  }
};

// --- norms on both sides ----------------------------------------------------------------------------------

class SandwichBlock final : public Block {
 public:
  SandwichBlock(const BlockOptions& o, std::shared_ptr<RopeTable> table) {
    add_child("input_layernorm", norm_of(o, true));
    add_child("self_attn", make_attention(o, std::move(table)));
    add_child("post_attention_layernorm", norm_of(o, false));
    add_child("pre_feedforward_layernorm", norm_of(o, true));
    add_child("mlp", mlp_of(o));
    add_child("post_feedforward_layernorm", norm_of(o, false));
  }

  std::optional<DataFlow> data_flow() const override {
    return DataFlow{.steps = {{kBefore, {DataFlow::kInput}},
                              {kBefore + 1, {kBefore}},
                              {kBefore + 2, {kBefore + 1}},
                              {kMlpBefore, {kBefore + 2, DataFlow::kInput}},
                              {kMlpBefore + 1, {kMlpBefore}},
                              {kMlpBefore + 2, {kMlpBefore + 1}}},
                    .output = {kMlpBefore + 2, kBefore + 2, DataFlow::kInput}};
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const size_t parts[] = {0, 1, 2, 3, 4, 5};
    return check_chain(ctx, *this, parts, first_input(inputs, *this));
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    std::optional<StackScope> scope;
    if (frame != nullptr) scope.emplace(ctx.temporaries);
    const Tensor middle = half(ctx, kBefore, x, frame);
    return {half(ctx, kMlpBefore, middle, frame)};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor dmiddle = half_backward(ctx, kMlpBefore, first_gradient(dy, *this), frame);
    return {half_backward(ctx, kBefore, dmiddle, frame)};
  }

 private:
  // The norm before each half; the half itself and the norm after it are the next two children.
  enum Part : size_t { kBefore = 0, kMlpBefore = 3 };

  Tensor half(Context& ctx, size_t before, const Tensor& x, Frame* frame) {
    const Tensor y = chained(ctx, before, before + 1, x, frame);
    return added(ctx, x, child(before + 2).forward_one(ctx, y, frame), frame);
  }
  // The gradient of the residual stream enters the norm before the half as dsum.
  Tensor half_backward(Context& ctx, size_t before, const Tensor& dy, Frame& frame) {
    const Tensor dhalf = child(before + 2).backward_one(ctx, dy, frame);
    const Tensor both[] = {child(before + 1).backward_one(ctx, dhalf, frame), dy};
    return child(before).backward(ctx, both, frame)[0];
  }
};

}  // namespace

ModulePtr make_block(const BlockOptions& options, std::shared_ptr<RopeTable> table) {
  if (options.residual_dropout != 0 && options.norms != BlockNorms::before)
    fail(Code::invalid_argument, "Block: residual_dropout is ", options.residual_dropout,
         ", but only a block with norms before its halves has one");
  switch (options.norms) {
    case BlockNorms::before: return std::make_shared<PreNormBlock>(options, std::move(table));
    case BlockNorms::after: return std::make_shared<PostNormBlock>(options, std::move(table));
    case BlockNorms::both: return std::make_shared<SandwichBlock>(options, std::move(table));
  }
  fail(Code::invalid_argument, "Block: norms is ", static_cast<int>(options.norms), ", not 0 to 2");
}

ModulePtr make_block(const BlockOptions& options) {
  return make_block(options, std::make_shared<RopeTable>(options.rope, checked_head_dim(options)));
}

}  // namespace gangway
