// Letters: B batch, S sequence, T = B S, H query heads, G key/value heads, K head width, D model width.
//
// Saved with a frame: q, k (rotated, in place), v, the heads' output (by reference o_proj's input too) and
// lse.
#include "nn/attention.h"

#include <cmath>

#include "nn/gradient.h"

namespace gangway {
namespace {

enum Part : size_t { kQ, kK, kV, kO };
enum Slot : int { kSavedQ, kSavedK, kSavedV, kSavedOut, kSavedLse };

class Attention final : public Module {
 public:
  Attention(const AttentionOptions& o, std::shared_ptr<RopeTable> table)
      : head_dim_(checked_head_dim(o)), causal_(o.causal), table_(std::move(table)) {
    const int64_t kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
    add_child("q_proj", make_linear(o.dim, o.heads * head_dim_, o.qkv_bias, o.deviation));
    add_child("k_proj", make_linear(o.dim, kv_heads * head_dim_, o.qkv_bias, o.deviation));
    add_child("v_proj", make_linear(o.dim, kv_heads * head_dim_, o.qkv_bias, o.deviation));
    add_child("o_proj", make_linear(o.heads * head_dim_, o.dim, o.out_bias, o.deviation));
  }

  const char* kind() const override { return "Attention"; }
  void add_options(Facts& facts) const override {
    facts.add("head_dim", head_dim_);
    facts.add("causal", causal_);
    const RopeOptions& rope = table_->options();
    facts.add("rope_theta", rope.theta);
    facts.add("rope_factor", rope.factor);
    facts.add("rope_low_frequency_factor", rope.low_frequency_factor);
    facts.add("rope_high_frequency_factor", rope.high_frequency_factor);
    facts.add("rope_original_positions", rope.original_positions);
  }

  Specs check_forward(Context& ctx, std::span<const Spec> inputs) override {
    const Spec& x = first_input(inputs, *this);
    check(x);
    for (const size_t part : {kK, kV}) child(part).check_forward(ctx, {&x, 1});
    const Specs heads = child(kQ).check_forward(ctx, {&x, 1});
    return heads.empty() ? Specs() : child(kO).check_forward(ctx, heads);
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& x = first_input(inputs, *this);
    check(spec_of(x));
    const Tensor q = heads(child(kQ).forward1(ctx, x, frame));
    const Tensor k = heads(child(kK).forward1(ctx, x, frame));
    const Tensor v = heads(child(kV).forward1(ctx, x, frame));
    rotate(ctx, q, false);
    rotate(ctx, k, false);
    const Tensor out = make_output(ctx, frame, q.dtype(), q.shape());
    const Tensor lse =
        make_output(ctx, frame, statistics_dtype(q.dtype()), Shape{q.dim(0), q.dim(2), q.dim(1)});
    ctx.ops.attention({.q = q, .k = k, .v = v, .out = out, .lse = lse, .scale = scale(), .causal = causal_},
                      ctx.stream);
    if (frame != nullptr) {
      frame->save(*this, kSavedQ, q);
      frame->save(*this, kSavedK, k);
      frame->save(*this, kSavedV, v);
      frame->save(*this, kSavedOut, out);
      frame->save(*this, kSavedLse, lse);
    }
    return {child(kO).forward1(ctx, rows(out), frame)};
  }

  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    const Tensor out = frame.load(ctx, *this, kSavedOut);
    const Tensor dout = child(kO).backward1(ctx, first_gradient(dy, *this), frame).reshape(out.shape());
    const Tensor q = frame.load(ctx, *this, kSavedQ);
    const Tensor k = frame.load(ctx, *this, kSavedK);
    const Tensor v = frame.load(ctx, *this, kSavedV);
    const Tensor dq = frame.allocate_gradient(q.dtype(), q.shape());
    const Tensor dk = frame.allocate_gradient(k.dtype(), k.shape());
    const Tensor dv = frame.allocate_gradient(v.dtype(), v.shape());
    ctx.ops.attention_backward({.q = q,
                                .k = k,
                                .v = v,
                                .out = out,
                                .lse = frame.load(ctx, *this, kSavedLse),
                                .dout = dout,
                                .dq = dq,
                                .dk = dk,
                                .dv = dv,
                                .scale = scale(),
                                .causal = causal_},
                               ctx.stream);
    rotate(ctx, dq, true);
    rotate(ctx, dk, true);
    const Tensor dx = child(kQ).backward1(ctx, rows(dq), frame);
    for (const auto& [part, dy_part] : {std::pair(kK, dk), std::pair(kV, dv)}) {
      const Stack::Mark mark = frame.mark();
      frame.add_gradient(ctx, dx, child(part).backward1(ctx, rows(dy_part), frame), mark);
    }
    return {dx};
  }

  Values tables() const override { return {table_->made().cos, table_->made().sin}; }

 private:
  void check(const Spec& x) const {
    if (x.shape.rank() != 3)
      fail(Code::invalid_argument, "Attention ", full_name(), ": input is ", x.text(),
           ", wanted [batch, sequence, width]");
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim_)); }

  // [B, S, heads * K] <-> [B, S, heads, K]. The number of heads follows from the projection's output: it may
  // be a part.
  Tensor heads(const Tensor& x) const {
    return x.reshape(Shape{x.dim(0), x.dim(1), x.dim(2) / head_dim_, head_dim_});
  }
  Tensor rows(const Tensor& x) const { return x.reshape(Shape{x.dim(0), x.dim(1), x.dim(2) * x.dim(3)}); }

  void rotate(Context& ctx, const Tensor& x, bool inverse) {
    const RopeTable::Pair table = table_->get(ctx, x.dtype(), x.dim(1));
    const Tensor x_T = rows(x).flatten2();
    ctx.ops.rope({.x = x_T,
                  .y = x_T,
                  .cos = table.cos,
                  .sin = table.sin,
                  .positions = {},
                  .heads = x.dim(2),
                  .sequence = x.dim(1),
                  .inverse = inverse},
                 ctx.stream);
  }

  int64_t head_dim_;
  bool causal_;
  std::shared_ptr<RopeTable> table_;
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
