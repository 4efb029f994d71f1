#include "nn/attention_core.h"

#include "nn/gradient.h"
#include "nn/kv_cache.h"

namespace gangway {
namespace {

enum Input : size_t { kQ, kK, kV };
enum Slot : int { kSavedQ, kSavedK, kSavedV, kSavedOut, kSavedLse };

}  // namespace

Specs AttentionCore::check_forward(Context&, std::span<const Spec> inputs) {
  if (inputs.size() != 3 || inputs[kQ].shape.rank() != 4)
    fail(Code::invalid_argument, kind(), " ", full_name(), ": got ", inputs.size(),
         " inputs, wanted q, k and v of [batch, sequence, heads, width]");
  return {{inputs[kQ].dtype, inputs[kQ].shape}};
}

Values AttentionCore::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor &q = inputs[kQ], &k = inputs[kK], &v = inputs[kV];
  const Tensor out = make_output(ctx, frame, q.dtype(), q.shape());
  const Tensor lse =
      make_output(ctx, frame, statistics_dtype(q.dtype()), Shape{q.dim(0), q.dim(2), q.dim(1)});
  AttentionArgs args{
      .q = q, .k = k, .v = v, .out = out, .lse = lse, .scale = options_.scale, .causal = options_.causal};
  if (ctx.cache != nullptr) ctx.cache->extend(ctx, this, options_.window, args);
  attend(ctx, args);
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
  const Tensor dq = frame.allocate_gradient(q.dtype(), q.shape());
  const Tensor dk = frame.allocate_gradient(k.dtype(), k.shape());
  const Tensor dv = frame.allocate_gradient(v.dtype(), v.shape());
  attend_backward(ctx,
                  {.q = q,
                   .k = k,
                   .v = v,
                   .out = frame.slots().load(ctx, *this, kSavedOut),
                   .lse = frame.slots().load(ctx, *this, kSavedLse),
                   .dout = first_gradient(dy, *this),
                   .dq = dq,
                   .dk = dk,
                   .dv = dv,
                   .scale = options_.scale,
                   .causal = options_.causal},
                  frame);
  return {dq, dk, dv};
}

void AttentionCore::attend(Context& ctx, const AttentionArgs& args) { ctx.ops.attention(args, ctx.stream); }

void AttentionCore::attend_backward(Context& ctx, const AttentionBackwardArgs& args, Frame&) {
  ctx.ops.attention_backward(args, ctx.stream);
}

}  // namespace gangway
