// Each rank exchanges all heads of its own tokens for all tokens of its own heads, attends to the whole
// sequence, and exchanges back (Jacobs et al., "DeepSpeed Ulysses", 2023). The query heads are divided over
// the ranks. The key/value heads are divided if there are enough of them; otherwise each goes to all ranks
// whose query heads use it, and its gradients are summed over these ranks.
//
// The bytes that one rank receives, where W is the number of ranks, Q the bytes of its q, and R the bytes of
// its k and v together (as sent, which is W heads of each if heads are repeated):
//   forward    (W-1)/W (2 Q + R), for q, out, k and v
//   backward   (W-1)/W (4 Q + 2 R), for q, out and their gradients, and for k, v and their gradients
// The gradients of repeated k and v are sent in f32 if k and v are bf16.
//
// Letters in names of tensors: B batch, S this rank's tokens, N all heads, n heads of one rank, K head width.
#include <algorithm>
#include <vector>

#include "nn/gradient.h"
#include "parallel/context/attention.h"

namespace gangway {
namespace {

class AllToAllAttention final : public ContextAttention {
 public:
  using ContextAttention::ContextAttention;
  const char* kind() const override { return "AllToAllAttention"; }

  void check_heads(int64_t heads, int64_t kv_heads) const override {
    if (heads % ranks() != 0)
      fail(Code::invalid_argument, kind(), " ", full_name(), ": ", heads, " heads do not divide over ",
           ranks(), " ranks; choose another degree of cp, or the method ring or all_gather");
    if (kv_heads % ranks() != 0 && ranks() % kv_heads != 0)
      fail(Code::invalid_argument, kind(), " ", full_name(), ": ", kv_heads,
           " key/value heads can be neither divided over ", ranks(), " ranks nor repeated for them; choose ",
           "another degree of cp, or the method ring or all_gather");
  }

 protected:
  // This rank computes with whole rows.
  KeyRanges key_ranges(Context& ctx, int64_t tokens) const override {
    return documents(ctx).of_whole_rows(ctx, tokens, mask());
  }

  void attend_across(Context& ctx, const AttentionArgs& args) override {
    AttentionArgs mine = args;
    mine.out = allocate_heads(ctx, args.out, args.out.dtype());
    mine.lse = lse_of(args.lse, mine.out);
    mine.sinks = own_heads(args.sinks);
    to_heads(ctx, {{&args.q, &mine.q}, {&args.k, &mine.k}, {&args.v, &mine.v}}, nullptr);
    ctx.ops.attention(mine, ctx.stream);
    to_sequence(ctx, {{&mine.out, &args.out}});
  }

  void attend_across_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) override {
    AttentionBackwardArgs mine = args;
    to_heads(ctx,
             {{&args.q, &mine.q},
              {&args.k, &mine.k},
              {&args.v, &mine.v},
              {&args.out, &mine.out},
              {&args.dout, &mine.dout}},
             &frame);
    mine.lse = lse_of(args.lse, mine.q);
    mine.sinks = own_heads(args.sinks);
    mine.dsinks = own_heads(args.dsinks);  // the other heads are those of other ranks
    const DType dtype = args.q.dtype();
    const DType of_kv = args.k.dim(2) < ranks() ? statistics_dtype(dtype) : dtype;
    mine.dq = ctx.temporaries.allocate(dtype, mine.q.shape());
    mine.dk = ctx.temporaries.allocate(of_kv, mine.k.shape());
    mine.dv = ctx.temporaries.allocate(of_kv, mine.v.shape());
    attention_backward(ctx, mine);
    to_sequence(ctx, {{&mine.dq, &args.dq}, {&mine.dk, &args.dk}, {&mine.dv, &args.dv}});
  }

 private:
  struct Move {
    const Tensor* from;
    Tensor* to;
  };
  struct Return {
    const Tensor *from, *to;
  };
  struct Heads {
    int64_t first, count;
  };

  // The heads that rank r computes, of a tensor with `heads` heads.
  Heads heads_of(int64_t heads, int r) const {
    return {r * heads / ranks(), std::max<int64_t>(1, heads / ranks())};
  }
  Tensor own_heads(const Tensor& sinks) const {
    if (!sinks) return {};
    const Heads own = heads_of(sinks.dim(0), rank());
    return sinks.slice(0, own.first, own.first + own.count);
  }
  // Views the statistics of forward in the layout of this rank's heads: [B, n, W S].
  static Tensor lse_of(const Tensor& lse, const Tensor& q_BSnK) {
    return lse.reshape({q_BSnK.dim(0), q_BSnK.dim(2), q_BSnK.dim(1)});
  }
  Tensor allocate_heads(Context& ctx, const Tensor& x, DType dtype) const {
    return ctx.temporaries.allocate(
        dtype, {x.dim(0), x.dim(1) * ranks(), heads_of(x.dim(2), rank()).count, x.dim(3)});
  }

  // What this rank sends to each rank and receives from each: [W, B, S, n, K].
  struct Parts {
    Tensor sent, got;
    static Tensor of(const Tensor& x, int r) {
      return x.slice(0, r, r + 1).reshape({x.dim(1), x.dim(2), x.dim(3), x.dim(4)});
    }
  };
  Parts allocate_parts(Context& ctx, DType dtype, const Shape& local_BSnK) const {
    const Shape shape{ranks(), local_BSnK[0], local_BSnK[1], local_BSnK[2], local_BSnK[3]};
    return {ctx.temporaries.allocate(dtype, shape), ctx.temporaries.allocate(dtype, shape)};
  }
  WorkPtr exchange(Context& ctx, const std::vector<Parts>& all) const {
    std::vector<Collective> records;
    for (const Parts& parts : all) {
      Collective c;
      c.op = CollectiveOp::all_to_all;
      c.in = parts.sent.raw();
      c.out = parts.got.raw();
      c.count = static_cast<size_t>(parts.sent.count() / ranks());
      c.dtype = parts.sent.dtype();
      records.push_back(c);
    }
    return start(ctx, records);
  }

  // Moves each tensor [B, S, N, K] to one of shape [B, W S, n, K], which it allocates.
  void to_heads(Context& ctx, const std::vector<Move>& moves, Frame* frame) const {
    for (const Move& m : moves) *m.to = allocate_heads(ctx, *m.from, m.from->dtype());
    StackScope scope(ctx.temporaries);
    std::vector<Parts> all;
    for (const Move& m : moves) {
      const Tensor& x = *m.from;
      all.push_back(allocate_parts(ctx, x.dtype(), {x.dim(0), x.dim(1), m.to->dim(2), x.dim(3)}));
      for (int r = 0; r < ranks(); ++r) {
        const Heads h = heads_of(x.dim(2), r);
        ctx.ops.cast(x.slice(2, h.first, h.first + h.count), Parts::of(all.back().sent, r), ctx.stream);
      }
    }
    const WorkPtr work = exchange(ctx, all);
    frame == nullptr ? order(ctx, work) : order(ctx, work, *frame);
    for (size_t i = 0; i < moves.size(); ++i)
      for (int r = 0; r < ranks(); ++r)
        join_sequence(ctx.ops, Parts::of(all[i].got, r), *moves[i].to, 1, r, ranks(), ctx.stream);
  }

  // Moves each tensor [B, W S, n, K] back to [B, S, N, K], and sums the results of all ranks that have
  // computed the same head.
  void to_sequence(Context& ctx, const std::vector<Return>& moves) const {
    StackScope scope(ctx.temporaries);
    std::vector<Parts> all;
    for (const Return& m : moves) {
      const Tensor& x = *m.from;
      all.push_back(allocate_parts(ctx, x.dtype(), {x.dim(0), x.dim(1) / ranks(), x.dim(2), x.dim(3)}));
      for (int r = 0; r < ranks(); ++r)
        split_sequence(ctx.ops, x, Parts::of(all.back().sent, r), 1, r, ranks(), ctx.stream);
    }
    order(ctx, exchange(ctx, all));
    for (size_t i = 0; i < moves.size(); ++i) {
      const int64_t heads = moves[i].to->dim(2);
      const int copies = heads < ranks() ? ranks() / static_cast<int>(heads) : 1;
      for (int r = 0; r < ranks(); r += copies) {
        const Tensor sum = Parts::of(all[i].got, r);
        for (int other = r + 1; other < r + copies; ++other)
          ctx.ops.add(Parts::of(all[i].got, other), 1, sum, ctx.stream);
        const Heads h = heads_of(heads, r);
        ctx.ops.cast(sum, moves[i].to->slice(2, h.first, h.first + h.count), ctx.stream);
      }
    }
  }
};

}  // namespace

std::shared_ptr<ContextAttention> make_all_to_all_attention(const AttentionCoreOptions& options,
                                                            GangPtr gang) {
  return std::make_shared<AllToAllAttention>(options, std::move(gang));
}

}  // namespace gangway
