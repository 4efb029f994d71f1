// Letters: B batch, S sequence, T = B S, H query heads, G key/value heads, K head width, D model width.
//
// The rotary embedding changes q and k in place, after their norms where there are any. The output of the
// heads is the input of o_proj; o_proj saves a reference to it, not a copy.
#include "nn/attention.h"

#include <array>
#include <cmath>

#include "nn/attention_core.h"
#include "nn/documents.h"
#include "nn/gradient.h"
#include "nn/joined_linears.h"

namespace gangway {
namespace {

enum Part : size_t { kQ, kK, kV, kO, kCore, kQNorm, kKNorm };
constexpr int kInput = 0;        // the only slot
constexpr int kProjections = 0;  // the only weight task

AttentionCoreOptions core_options(const AttentionOptions& o, int64_t head_dim) {
  return {.heads = o.heads,
          .kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads,
          .scale = o.score_scale != 0 ? o.score_scale : 1 / std::sqrt(static_cast<double>(head_dim)),
          .causal = o.causal,
          .window = o.window,
          .cap = o.score_cap,
          .sinks = o.sinks};
}

class Attention final : public Module {
 public:
  Attention(const AttentionOptions& o, std::shared_ptr<RopeTable> table)
      : heads_(o.heads),
        kv_heads_(o.kv_heads == 0 ? o.heads : o.kv_heads),
        head_dim_(checked_head_dim(o)),
        qk_norm_(o.qk_norm),
        dropout_(o.attention_dropout),
        table_(std::move(table)),
        projections_(*this, {kQ, kK, kV}, kInput, kProjections) {
    check_scale(o);
    add_child("q_proj", make_linear(o.dim, heads_ * head_dim_, o.qkv_bias, o.deviation));
    add_child("k_proj", make_linear(o.dim, kv_heads_ * head_dim_, o.qkv_bias, o.deviation));
    add_child("v_proj", make_linear(o.dim, kv_heads_ * head_dim_, o.qkv_bias, o.deviation));
    add_child("o_proj", make_linear(o.heads * head_dim_, o.dim, o.out_bias, o.deviation));
    add_child("core_attention", std::make_shared<AttentionCore>(core_options(o, head_dim_)));
    if (!has_norms()) return;
    add_child("q_norm", make_rmsnorm(normed_width(heads_), o.eps, false, o.norm_offset));
    add_child("k_norm", make_rmsnorm(normed_width(kv_heads_), o.eps, false, o.norm_offset));
  }

  const char* kind() const override { return "Attention"; }
  std::optional<DataFlow> data_flow() const override {
    const DataFlow::Pieces heads{heads_, "heads"}, kv_heads{kv_heads_, "key and value heads"};
    DataFlow flow{.steps = {{kQ, {DataFlow::kInput}, heads},
                            {kK, {DataFlow::kInput}, kv_heads},
                            {kV, {DataFlow::kInput}, kv_heads}},
                  .output = {kO}};
    if (has_norms()) {
      const bool whole = qk_norm_ == QkNorm::width;
      flow.steps.push_back({kQNorm, {kQ}, whole ? heads : DataFlow::Pieces{}});
      flow.steps.push_back({kKNorm, {kK}, whole ? kv_heads : DataFlow::Pieces{}});
    }
    flow.steps.push_back({kCore, {has_norms() ? kQNorm : kQ, has_norms() ? kKNorm : kK, kV}});
    flow.steps.push_back({kO, {kCore}});
    return flow;
  }
  void add_options(CallSignature& signature) const override {
    signature.add("head_dim", head_dim_);
    signature.add("qk_norm", qk_norm_);
    gangway::add_options(table_->options(), signature);
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x);
    check_dropout(ctx);
    Specs projected;
    for (const size_t part : {kQ, kK, kV}) {
      const Specs y = child(part).check_forward(ctx, {&x, 1});
      if (y.empty()) return {};
      projected.push_back({y[0].dtype, heads(y[0].shape)});
      if (!has_norms() || part == kV) continue;
      const Spec normed{y[0].dtype, normed_shape(projected[part].shape)};
      child(norm_of(part)).check_forward(ctx, {&normed, 1});
    }
    const Specs out = child(kCore).check_forward(ctx, projected);
    if (out.empty()) return {};
    const Spec flat{out[0].dtype, rows(out[0].shape)};
    return child(kO).check_forward(ctx, {&flat, 1});
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    check(spec_of(x));
    check_dropout(ctx);
    const Projected qkv = can_join(ctx, x) ? projected_at_once(ctx, x, frame) : projected(ctx, x, frame);
    Tensor out;
    {
      const TraceSpan span = child(kCore).span(ctx, "forward");
      out = child(kCore).forward(ctx, std::array{qkv.q, qkv.k, qkv.v}, frame).at(0);
    }
    return {child(kO).forward_one(ctx, flat(out), frame)};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor dflat = child(kO).backward_one(ctx, first_gradient(dy, *this), frame);
    const Tensor dout = dflat.reshape(heads(dflat.shape()));
    Values dqkv;
    {
      const TraceSpan span = child(kCore).span(ctx, "backward");
      dqkv = child(kCore).backward(ctx, {&dout, 1}, frame);
    }
    if (projections_.joined(frame)) {
      const Tensor all = Projected{dqkv.at(kQ), dqkv.at(kK), dqkv.at(kV)}.joined();
      rotate_columns(ctx, all, dqkv[kQ].dim(2) + dqkv[kK].dim(2), true);
      return {projections_.backward(ctx, all, frame)};
    }
    rotate(ctx, dqkv.at(kQ), true);
    rotate(ctx, dqkv.at(kK), true);
    if (has_norms()) {
      dqkv[kQ] = norm_backward(ctx, kQ, dqkv[kQ], frame);
      dqkv[kK] = norm_backward(ctx, kK, dqkv[kK], frame);
    }
    const Tensor dx = child(kQ).backward_one(ctx, flat(dqkv[kQ]), frame);
    for (const size_t part : {kK, kV}) child(part).add_backward_one(ctx, flat(dqkv.at(part)), frame, dx);
    return {dx};
  }

  void backward_weight(Context& ctx, Frame& frame, int, const Tensor& dy) override {
    projections_.backward_weight(ctx, frame, dy);
  }

  Values tables() const override { return table_->made(); }

 private:
  void check(const Spec& x) const {
    if (x.shape.rank() != 3)
      fail(Code::invalid_argument, "Attention ", full_name(), ": input is ", x.text(),
           ", wanted [batch, sequence, width]");
  }

  void check_dropout(const Context& ctx) const {
    if (dropout_ != 0 && ctx.training)
      fail(Code::not_supported, "Attention ", full_name(), ": attention_dropout (attn_pdrop of a gpt2) is ",
           dropout_, ", but training has no dropout of attention's probabilities; make the model with ",
           "attention_dropout 0, or write 0 in config.json, to train without it");
  }

  static void check_scale(const AttentionOptions& o) {
    if (!(std::isfinite(o.score_scale) && o.score_scale >= 0))
      fail(Code::invalid_argument, "Attention: score_scale is ", o.score_scale,
           "; it is 0, which is 1 / sqrt(head_dim), or a finite number above it");
  }

  bool has_norms() const { return qk_norm_ != QkNorm::none; }
  int64_t normed_width(int64_t heads) const {
    return qk_norm_ == QkNorm::width ? heads * head_dim_ : head_dim_;
  }
  static size_t norm_of(size_t part) { return part == kQ ? kQNorm : kKNorm; }
  // Returns the shape in which a norm takes heads [B, S, heads, K].
  Shape normed_shape(const Shape& x) const { return qk_norm_ == QkNorm::width ? rows(x) : x; }

  // A norm of each head wants heads that lie one behind the other, and a norm of the width whole rows.
  bool can_join(const Context& ctx, const Tensor& x) const {
    const auto* const core = dynamic_cast<const AttentionCore*>(&child(kCore));
    return !has_norms() && core != nullptr && core->takes_columns() && projections_.can_join(ctx, x);
  }
  Projected projected_at_once(Context& ctx, const Tensor& x, Frame* frame) {
    const Tensor all = projections_.forward(ctx, x, frame);
    const int64_t heads = projections_.width(kQ) / head_dim_, kv_heads = projections_.width(kK) / head_dim_;
    rotate_columns(ctx, all, heads + kv_heads, false);
    return Projected::split(all, heads, kv_heads, head_dim_);
  }
  Projected projected(Context& ctx, const Tensor& x, Frame* frame) {
    Tensor qkv[3];
    for (const size_t part : {kQ, kK, kV}) {
      const Tensor y = child(part).forward_one(ctx, x, frame);
      qkv[part] = y.reshape(heads(y.shape()));
    }
    if (has_norms()) {
      qkv[kQ] = normed(ctx, kQ, qkv[kQ], frame);
      qkv[kK] = normed(ctx, kK, qkv[kK], frame);
    }
    rotate(ctx, qkv[kQ], false);
    rotate(ctx, qkv[kK], false);
    return {qkv[kQ], qkv[kK], qkv[kV]};
  }

  // Returns the normed heads in memory that rotate() may write over. Under selective recomputation that is a
  // copy, because the norm's own output would be made again without the rotation.
  Tensor normed(Context& ctx, size_t part, const Tensor& x, Frame* frame) {
    const Tensor y = child(norm_of(part)).forward_one(ctx, x.reshape(normed_shape(x.shape())), frame);
    return (frame == nullptr ? y : frame->slots().kept(ctx, y)).reshape(x.shape());
  }
  Tensor norm_backward(Context& ctx, size_t part, const Tensor& dy, Frame& frame) {
    const Tensor dx = child(norm_of(part)).backward_one(ctx, dy.reshape(normed_shape(dy.shape())), frame);
    return dx.reshape(dy.shape());
  }

  // [B, S, heads * K] <-> [B, S, heads, K]. The number of heads follows from the width of the projection's
  // output, because with tensor parallelism this rank has only some of the heads.
  Shape heads(const Shape& x) const { return {x[0], x[1], x[2] / head_dim_, head_dim_}; }
  static Shape rows(const Shape& x) { return {x[0], x[1], x[2] * x[3]}; }
  static Tensor flat(const Tensor& x) { return x.reshape(rows(x.shape())); }

  void rotate(Context& ctx, const Tensor& x, bool inverse) {
    rotate_columns(ctx, flat(x), x.dim(2), inverse);
  }
  // Rotates the first `count` heads of x [B, S, N] in place.
  void rotate_columns(Context& ctx, const Tensor& x, int64_t count, bool inverse) {
    if (!table_->turns()) return;
    const Positions positions = table_->positions(ctx, x.dim(1));
    const RopeTable::Pair table = table_->get(ctx, x.dtype(), positions.count);
    const Tensor x_T = columns(x, 0, count * head_dim_).flatten2();
    ctx.ops.rope({.x = x_T,
                  .y = x_T,
                  .cos = table.cos,
                  .sin = table.sin,
                  .positions = positions.rows ? positions.rows.reshape({positions.rows.count()}) : Tensor(),
                  .heads = count,
                  .sequence = x.dim(1),
                  .inverse = inverse},
                 ctx.stream);
  }

  int64_t heads_, kv_heads_, head_dim_;
  QkNorm qk_norm_;
  double dropout_;
  std::shared_ptr<RopeTable> table_;
  const JoinedLinears projections_;
};

}  // namespace

int64_t checked_head_dim(const AttentionOptions& o) {
  const int64_t kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
  if (o.dim < 1 || o.heads < 1 || kv_heads < 1 || o.head_dim < 0)
    fail(Code::invalid_argument, "Attention: dim is ", o.dim, ", heads is ", o.heads, ", kv_heads is ",
         o.kv_heads, ", head_dim is ", o.head_dim, "; dim and heads are 1 or more, the others not negative");
  for (const auto& [field, width] : {std::pair("dim", o.dim), std::pair("heads", o.heads),
                                     std::pair("kv_heads", kv_heads), std::pair("head_dim", o.head_dim)})
    if (width > kMostWidth)
      fail(Code::invalid_argument, "Attention: ", field, " is ", width, "; the most is ", kMostWidth);
  if (o.heads % kv_heads != 0)
    fail(Code::invalid_argument, "Attention: heads is ", o.heads, ", which kv_heads ", kv_heads,
         " does not divide");
  if (o.head_dim == 0 && o.dim % o.heads != 0)
    fail(Code::invalid_argument, "Attention: dim is ", o.dim, ", which heads ", o.heads,
         " does not divide; give head_dim");
  return o.head_dim == 0 ? o.dim / o.heads : o.head_dim;
}

ModulePtr make_attention(const AttentionOptions& options, std::shared_ptr<RopeTable> table) {
  return std::make_shared<Attention>(options, std::move(table));
}

ModulePtr make_attention(const AttentionOptions& options) {
  return make_attention(options, std::make_shared<RopeTable>(options.rope, checked_head_dim(options)));
}

}  // namespace gangway
