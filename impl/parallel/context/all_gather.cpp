// Each rank gathers the keys and values of the whole sequence and attends to them with its own queries. This
// method takes every mask that the attention operation has.
//
// The bytes that one rank receives, where W is the number of ranks, E the number of elements of its k and v
// together, e the bytes of such an element, and s the bytes of an f32 element (f64 for f64):
//   forward    (W-1) E e
//   backward   (W-1) E e for k and v, and (W-1) E s for their gradients
//
// Letters in names of tensors: B batch, S this rank's tokens, G key/value heads, K head width.
#include <array>
#include <vector>

#include "nn/gradient.h"
#include "parallel/context/attention.h"

namespace gangway {
namespace {

// Keys and values, or their gradients.
using Pair = std::array<Tensor, 2>;

// The shape of a tensor that has the tokens of all ranks, from the `shape` of one rank's tensor.
Shape whole_of(const Shape& shape, int ranks) {
  Shape whole = shape;
  whole[1] *= ranks;
  return whole;
}

// The part of `rank` in x [W, B, S, G, K], in which the equal parts of W ranks lie one after the other.
Tensor part(const Tensor& x, int rank, const Shape& shape) {
  return x.slice(0, rank, rank + 1).reshape(shape);
}

Tensor allocate_parts(Context& ctx, DType dtype, const Shape& shape, int ranks) {
  return ctx.temporaries.allocate(dtype, {ranks, shape[0], shape[1], shape[2], shape[3]});
}

class AllGatherAttention final : public ContextAttention {
 public:
  using ContextAttention::ContextAttention;
  const char* kind() const override { return "AllGatherAttention"; }

 protected:
  void attend_across(Context& ctx, const AttentionArgs& args) override {
    const Pair whole = gather(ctx, {args.k, args.v}, nullptr);
    for (const Chunk& c : query_chunks(args.q.dim(1), args.causal && !args.first_key)) {
      StackScope scope(ctx.temporaries);
      const Tensor lse = rows_of(args.lse, 2, c),
                   lse_now = ctx.temporaries.allocate(lse.dtype(), lse.shape());
      ctx.ops.attention({.q = rows_of(args.q, 1, c),
                         .k = whole[0],
                         .v = whole[1],
                         .out = rows_of(args.out, 1, c),
                         .lse = lse_now,
                         .scale = args.scale,
                         .causal = args.causal,
                         .q_offset = c.position,
                         .first_key = args.first_key,
                         .end_key = args.end_key,
                         .cap = args.cap,
                         .sinks = args.sinks},
                        ctx.stream);
      ctx.ops.cast(lse_now, lse, ctx.stream);
    }
  }

  void attend_across_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) override {
    const DType dtype = args.q.dtype(), wide = statistics_dtype(dtype);
    const Pair whole = gather(ctx, {args.k, args.v}, &frame);
    const Shape shape = whole[0].shape();
    const Pair dwhole = {ctx.temporaries.allocate(wide, shape), ctx.temporaries.allocate(wide, shape)};
    for (const Tensor& x : dwhole) ctx.ops.fill(x, 0, ctx.stream);
    const Tensor dq = wide == dtype ? args.dq : ctx.temporaries.allocate(wide, args.dq.shape());
    ctx.ops.fill(dq, 0, ctx.stream);
    for (const Chunk& c : query_chunks(args.q.dim(1), args.causal && !args.first_key)) {
      StackScope scope(ctx.temporaries);
      const Tensor lse = rows_of(args.lse, 2, c),
                   lse_now = ctx.temporaries.allocate(lse.dtype(), lse.shape());
      ctx.ops.cast(lse, lse_now, ctx.stream);
      ctx.ops.attention_backward({.q = rows_of(args.q, 1, c),
                                  .k = whole[0],
                                  .v = whole[1],
                                  .out = rows_of(args.out, 1, c),
                                  .lse = lse_now,
                                  .dout = rows_of(args.dout, 1, c),
                                  .dq = rows_of(dq, 1, c),
                                  .dk = dwhole[0],
                                  .dv = dwhole[1],
                                  .scale = args.scale,
                                  .causal = args.causal,
                                  .q_offset = c.position,
                                  .accumulate = true,
                                  .first_key = args.first_key,
                                  .end_key = args.end_key,
                                  .cap = args.cap,
                                  .sinks = args.sinks,
                                  .dsinks = args.dsinks},
                                 ctx.stream);
    }
    if (wide != dtype) ctx.ops.cast(dq, args.dq, ctx.stream);
    reduce_scatter(ctx, dwhole, {args.dk, args.dv});
  }

 private:
  // The runs of queries. The operation's own causal mask needs consecutive positions, so this rank's two
  // chunks are computed separately; without that mask one run has all tokens.
  std::vector<Chunk> query_chunks(int64_t tokens, bool by_position) const {
    if (!by_position) return {{0, 0, tokens}};
    const std::array<Chunk, 2> chunks = chunks_of(tokens, rank(), ranks());
    return {chunks.begin(), chunks.end()};
  }
  static Tensor rows_of(const Tensor& x, int dim, const Chunk& c) {
    return x.slice(dim, c.local, c.local + c.count);
  }

  // Returns the keys and values of all ranks, in the order of the sequence. The deferred weight gradients of
  // `frame`, if it is not null, run while the collective does.
  Pair gather(Context& ctx, const Pair& own, Frame* frame) const {
    const Shape& shape = own[0].shape();
    const DType dtype = own[0].dtype();
    Pair whole, parts;
    for (Tensor& x : whole) x = ctx.temporaries.allocate(dtype, whole_of(shape, ranks()));
    StackScope scope(ctx.temporaries);
    std::vector<Collective> records(own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      parts[i] = allocate_parts(ctx, dtype, shape, ranks());
      records[i].op = CollectiveOp::all_gather;
      records[i].in = own[i].raw();
      records[i].out = parts[i].raw();
      records[i].count = static_cast<size_t>(shape.count());
      records[i].dtype = dtype;
    }
    const WorkPtr work = start(ctx, records);
    frame == nullptr ? order(ctx, work) : order(ctx, work, *frame);
    for (size_t i = 0; i < own.size(); ++i)
      for (int r = 0; r < ranks(); ++r)
        join_sequence(ctx.ops, part(parts[i], r, shape), whole[i], 1, r, ranks(), ctx.stream);
    return whole;
  }

  // Sums `whole` over the ranks and writes the sums of this rank's own tokens to `own`.
  void reduce_scatter(Context& ctx, const Pair& whole, const Pair& own) const {
    const Shape& shape = own[0].shape();
    const DType wide = whole[0].dtype();
    Pair sums;
    std::vector<Collective> records(own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor parts = allocate_parts(ctx, wide, shape, ranks());
      for (int r = 0; r < ranks(); ++r)
        split_sequence(ctx.ops, whole[i], part(parts, r, shape), 1, r, ranks(), ctx.stream);
      sums[i] = own[i].dtype() == wide ? own[i] : ctx.temporaries.allocate(wide, shape);
      records[i].op = CollectiveOp::reduce_scatter;
      records[i].reduce = Reduce::sum;
      records[i].in = parts.raw();
      records[i].out = sums[i].raw();
      records[i].count = static_cast<size_t>(shape.count());
      records[i].dtype = wide;
    }
    order(ctx, start(ctx, records));
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i].dtype() != wide) ctx.ops.cast(sums[i], own[i], ctx.stream);
  }
};

}  // namespace

std::shared_ptr<ContextAttention> make_all_gather_attention(const AttentionCoreOptions& options,
                                                            GangPtr gang) {
  return std::make_shared<AllGatherAttention>(options, std::move(gang));
}

}  // namespace gangway
