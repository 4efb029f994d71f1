#include "nn/attention_core.h"

#include <array>
#include <cmath>

#include "nn/gradient.h"
#include "nn/joined_linears.h"
#include "nn/kv_cache.h"

namespace gangway {
namespace {

enum Input : size_t { kQ, kK, kV };
enum Slot : int { kSavedQ, kSavedK, kSavedV, kSavedOut, kSavedLse };

// [B, S, H K] <-> [B, S, H, K], where rows may have gaps.
Tensor heads_of(const Tensor& x, int64_t head_dim) {
  return Tensor(x.buffer(), x.byte_offset(), x.dtype(), {x.dim(0), x.dim(1), x.dim(2) / head_dim, head_dim},
                std::array<int64_t, 4>{x.stride(0), x.stride(1), head_dim, 1});
}
Tensor rows_of(const Tensor& x) {
  return Tensor(x.buffer(), x.byte_offset(), x.dtype(), {x.dim(0), x.dim(1), x.dim(2) * x.dim(3)},
                std::array<int64_t, 3>{x.stride(0), x.stride(1), 1});
}
bool heads_are_close(const Tensor& x) {
  return x.rank() == 4 && (x.dim(2) < 2 || x.stride(2) == x.dim(3)) && (x.dim(3) < 2 || x.stride(3) == 1);
}

}  // namespace

Projected Projected::split(const Tensor& all, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const int64_t q = heads * head_dim, k = q + kv_heads * head_dim;
  return {heads_of(columns(all, 0, q), head_dim), heads_of(columns(all, q, k), head_dim),
          heads_of(columns(all, k, all.dim(2)), head_dim)};
}

Tensor Projected::joined() const {
  if (!heads_are_close(q) || !heads_are_close(k) || !heads_are_close(v)) return {};
  return joined_columns(std::array{rows_of(q), rows_of(k), rows_of(v)});
}

AttentionCore::AttentionCore(const AttentionCoreOptions& options, SequencePart part)
    : options_(options), alone_(part) {
  if (options.window < 0)
    fail(Code::invalid_argument, "attention: window is ", options.window,
         "; it is 0, which is none, or a number of tokens");
  if (!(std::isfinite(options.cap) && options.cap >= 0))
    fail(Code::invalid_argument, "attention: score_cap is ", options.cap,
         "; it is 0, which is none, or a finite number above it");
  if (options.sinks) add_parameter("sinks", Shape{options.heads}, Init::normal(0.02));
}

void AttentionCore::add_options(CallSignature& signature) const {
  signature.add("causal", options_.causal);
  signature.add("scale", options_.scale);
  signature.add("window", options_.window);
  signature.add("score_cap", options_.cap);
}

Specs AttentionCore::check_forward(Context& ctx, std::span<const Spec> inputs) {
  if (inputs.size() != 3 || inputs[kQ].shape.rank() != 4)
    fail(Code::invalid_argument, kind(), " ", full_name(), ": got ", inputs.size(),
         " inputs, wanted q, k and v of [batch, sequence, heads, width]");
  documents(ctx).check(kind(), full_name(), inputs[kQ].shape[0], inputs[kQ].shape[1]);
  return {{inputs[kQ].dtype, inputs[kQ].shape}};
}

Values AttentionCore::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor &q = inputs[kQ], &k = inputs[kK], &v = inputs[kV];
  const Tensor out = make_output(ctx, frame, q.dtype(), q.shape());
  const Tensor lse =
      make_output(ctx, frame, statistics_dtype(q.dtype()), Shape{q.dim(0), q.dim(2), q.dim(1)});
  {
    const StackScope scope(ctx.temporaries);
    const KeyRanges seen = ctx.cache == nullptr ? key_ranges(ctx, q.dim(1)) : KeyRanges();
    AttentionArgs args{.q = q,
                       .k = k,
                       .v = v,
                       .out = out,
                       .lse = lse,
                       .scale = options_.scale,
                       .causal = options_.causal,
                       .first_key = seen.first_key,
                       .end_key = seen.end_key,
                       .cap = options_.cap,
                       .sinks = sinks_as(ctx, q.dtype())};
    if (ctx.cache != nullptr) {
      GW_CHECK(frame == nullptr, ==, true);  // backward would not have the keys of the cache
      ctx.cache->extend(ctx, this, options_.window, args);
    }
    attend(ctx, args);
  }
  if (frame != nullptr) {
    frame->slots().save(*this, kSavedQ, q);
    frame->slots().save(*this, kSavedK, k);
    frame->slots().save(*this, kSavedV, v);
    frame->slots().save(*this, kSavedOut, out);
    frame->slots().save(*this, kSavedLse, lse);
  }
  return {out};
}

Values AttentionCore::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  const Tensor q = frame.slots().load(ctx, *this, kSavedQ);
  const Tensor k = frame.slots().load(ctx, *this, kSavedK);
  const Tensor v = frame.slots().load(ctx, *this, kSavedV);
  Projected d;
  if (const Tensor all = takes_columns() ? Projected{q, k, v}.joined() : Tensor())
    d = Projected::split(frame.allocate_gradient(q.dtype(), all.shape()), q.dim(2), k.dim(2), q.dim(3));
  else
    d = {frame.allocate_gradient(q.dtype(), q.shape()), frame.allocate_gradient(k.dtype(), k.shape()),
         frame.allocate_gradient(v.dtype(), v.shape())};
  const StackScope scope(ctx.temporaries);
  const KeyRanges seen = key_ranges(ctx, q.dim(1));
  const bool learns_sinks = options_.sinks && wants_gradient(*parameters()[0]);
  attend_backward(ctx,
                  {.q = q,
                   .k = k,
                   .v = v,
                   .out = frame.slots().load(ctx, *this, kSavedOut),
                   .lse = frame.slots().load(ctx, *this, kSavedLse),
                   .dout = first_gradient(dy, *this),
                   .dq = d.q,
                   .dk = d.k,
                   .dv = d.v,
                   .scale = options_.scale,
                   .causal = options_.causal,
                   .first_key = seen.first_key,
                   .end_key = seen.end_key,
                   .cap = options_.cap,
                   .sinks = sinks_as(ctx, q.dtype()),
                   .dsinks = learns_sinks ? gradient_to_add(ctx, *parameters()[0]) : Tensor()},
                  frame);
  return {d.q, d.k, d.v};
}

Tensor AttentionCore::sinks_as(Context& ctx, DType dtype) const {
  return options_.sinks ? as_dtype(ctx, value_of(*parameters()[0]), dtype) : Tensor();
}

void AttentionCore::attend(Context& ctx, const AttentionArgs& args) { ctx.ops.attention(args, ctx.stream); }

void AttentionCore::attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame&) {
  attention_backward(ctx, args);
}

void attention_backward(Context& ctx, AttentionBackwardArgs args) {
  const StackScope scope(ctx.temporaries);
  if (const size_t bytes = ctx.ops.attention_workspace_bytes(args); bytes > 0)
    args.workspace = ctx.temporaries.allocate(DType::u8, Shape{static_cast<int64_t>(bytes)});
  ctx.ops.attention_backward(args, ctx.stream);
}

}  // namespace gangway
