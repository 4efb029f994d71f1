// Ring attention (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers", 2023). In step i
// rank r holds the keys and values of rank r - i. While it computes with them, it sends them to rank r + 1
// and receives the next ones.
//
// The bytes that one rank receives, where W is the number of ranks, E the number of elements of its k and v
// together, e the bytes of such an element, and s the bytes of an f32 element (f64 for f64):
//   forward    (W-1) E e
//   backward   (W-1) E e for k and v, and W E s for their gradients
//
// Letters in names of tensors: B batch, S this rank's tokens, H query heads, G key/value heads, K head width.
#include <vector>

#include "nn/gradient.h"
#include "parallel/context/attention.h"

namespace gangway {
namespace {

// Keys and values, or their gradients.
struct KeysAndValues {
  Tensor k, v;
};

KeysAndValues allocate(Context& ctx, DType dtype, const Shape& shape) {
  return {ctx.temporaries.allocate(dtype, shape), ctx.temporaries.allocate(dtype, shape)};
}

// A tensor to send to the next rank of the ring, and the tensor that receives the previous rank's.
struct RingTransfer {
  Tensor from, to;
};

class RingAttention final : public ContextAttention {
 public:
  using ContextAttention::ContextAttention;
  const char* kind() const override { return "RingAttention"; }

 protected:
  KeyRanges key_ranges(Context& ctx, int64_t tokens) const override {
    return documents(ctx).of_keys_of(rank(), ctx, tokens, mask());
  }

  void attend_across(Context& ctx, const AttentionArgs& args) override {
    const DType dtype = args.q.dtype(), wide = statistics_dtype(dtype);
    const Tensor out_BSHK = wide == dtype ? args.out : ctx.temporaries.allocate(wide, args.out.shape());
    KeysAndValues here{args.k, args.v};
    const KeysAndValues rooms[] = {allocate(ctx, dtype, args.k.shape()),
                                   allocate(ctx, dtype, args.k.shape())};
    for (int i = 0; i < ranks(); ++i) {
      const KeysAndValues& next = rooms[i % 2];
      WorkPtr travel;
      if (i + 1 < ranks()) travel = pass_on(ctx, {{here.k, next.k}, {here.v, next.v}});
      attend_to(ctx, args, here, i, out_BSHK);
      if (travel == nullptr) break;
      order(ctx, travel);
      here = next;
    }
    if (wide != dtype) ctx.ops.cast(out_BSHK, args.out, ctx.stream);
  }

  // The gradients of keys and values travel one step behind the keys and values, and are back on their own
  // rank after W steps. This rank computes its contribution while they are on their way, and adds it when
  // they have arrived.
  void attend_across_backward(Context& ctx, const AttentionBackwardArgs& args, Frame& frame) override {
    const DType dtype = args.q.dtype(), wide = statistics_dtype(dtype);
    const bool narrow = wide != dtype;
    AttentionBackwardArgs step = args;
    if (narrow) step.dq = ctx.temporaries.allocate(wide, args.dq.shape());
    KeysAndValues here{args.k, args.v};
    const KeysAndValues rooms[] = {allocate(ctx, dtype, args.k.shape()),
                                   allocate(ctx, dtype, args.k.shape())};
    const KeysAndValues sums[] = {allocate(ctx, wide, args.k.shape()), allocate(ctx, wide, args.k.shape())};
    const KeysAndValues part = allocate(ctx, wide, args.k.shape());
    for (int i = 0; i < ranks(); ++i) {
      const KeysAndValues &next = rooms[i % 2], &sum = sums[i % 2], &before = sums[(i + 1) % 2];
      std::vector<RingTransfer> transfers;
      if (i + 1 < ranks()) transfers = {{here.k, next.k}, {here.v, next.v}};
      if (i > 0) transfers.insert(transfers.end(), {{before.k, sum.k}, {before.v, sum.v}});
      const WorkPtr travel = pass_on(ctx, transfers);
      const Visible now = visible(ctx, args.first_key, args.q.dim(1), i);
      if (!now.nothing()) backward_of(ctx, step, now, here, i == 0 ? sum : part, i > 0);
      order(ctx, travel);
      if (i > 0 && !now.nothing()) add_keys(ctx, part, sum, now.last_key);
      here = next;
    }
    const KeysAndValues &last = sums[(ranks() - 1) % 2],
                        home = narrow ? sums[ranks() % 2] : KeysAndValues{args.dk, args.dv};
    const WorkPtr travel = pass_on(ctx, {{last.k, home.k}, {last.v, home.v}});
    order(ctx, travel, frame);
    if (!narrow) return;
    ctx.ops.cast(step.dq, args.dq, ctx.stream);
    ctx.ops.cast(home.k, args.dk, ctx.stream);
    ctx.ops.cast(home.v, args.dv, ctx.stream);
  }

 private:
  // What this rank's queries see of the keys of one step: the queries from first_query to end_query see some
  // of the keys before last_key, by the ranges if there are some.
  struct Visible {
    int64_t first_query = 0, end_query = 0, last_key = 0;
    bool causal = false;
    Tensor first_key, end_key;
    bool nothing() const { return first_query == end_query; }
  };
  // `own`: the ranges of step 0, absent if the operation's own mask is enough. Each query sees its own key,
  // so that step 0 has all queries.
  Visible visible(Context& ctx, const Tensor& own, int64_t tokens, int i) const {
    if (!own) {
      const RingStep step = ring_step(i, tokens, options().causal, rank(), ranks());
      return {step.first_query, tokens, step.last_key, step.causal, {}, {}};
    }
    const int source = (rank() - i + ranks()) % ranks();
    const KeyRanges seen = documents(ctx).of_keys_of(source, ctx, tokens, mask());
    return {seen.first_query, seen.end_query, i == 0 ? tokens : seen.end_of_keys, false,
            seen.first_key,   seen.end_key};
  }

  WorkPtr pass_on(Context& ctx, const std::vector<RingTransfer>& transfers) const {
    std::vector<Collective> records;
    for (const RingTransfer& transfer : transfers) {
      Collective c;
      c.count = static_cast<size_t>(transfer.from.count());
      c.dtype = transfer.from.dtype();
      c.op = CollectiveOp::send;
      c.in = transfer.from.raw();
      c.peer = (rank() + 1) % ranks();
      records.push_back(c);
      c.op = CollectiveOp::recv;
      c.in = nullptr;
      c.out = transfer.to.raw();
      c.peer = (rank() + ranks() - 1) % ranks();
      records.push_back(c);
    }
    return start(ctx, records);
  }

  // Computes step i of forward. Step 0 writes `out` and lse; later steps merge their results into them.
  void attend_to(Context& ctx, const AttentionArgs& args, const KeysAndValues& kv, int i,
                 const Tensor& out) const {
    StackScope scope(ctx.temporaries);
    const Visible step = visible(ctx, args.first_key, args.q.dim(1), i);
    if (step.nothing()) return;
    const auto queries = [&](const Tensor& x, int dim) {
      return x.slice(dim, step.first_query, step.end_query);
    };
    AttentionArgs now = args;
    now.q = queries(args.q, 1);
    now.k = kv.k.slice(1, 0, step.last_key);
    now.v = kv.v.slice(1, 0, step.last_key);
    now.causal = step.causal;
    now.first_key = step.first_key;
    now.end_key = step.end_key;
    if (i > 0) now.sinks = {};
    const Tensor out_now = queries(out, 1), lse_now = queries(args.lse, 2);
    const bool direct = i == 0 && out.dtype() == args.q.dtype();
    now.out = direct ? out : ctx.temporaries.allocate(args.q.dtype(), now.q.shape());
    now.lse = i == 0 ? args.lse : ctx.temporaries.allocate(args.lse.dtype(), lse_now.shape());
    ctx.ops.attention(now, ctx.stream);
    if (i > 0)
      ctx.ops.attention_merge({.out = out_now, .lse = lse_now, .part = now.out, .part_lse = now.lse},
                              ctx.stream);
    else if (!direct)
      ctx.ops.cast(now.out, out, ctx.stream);
  }

  // Computes one step of backward from the final out and lse. It writes `dkv`, and it adds to dq if
  // `accumulate`, otherwise it writes dq and adds the gradient of the sinks.
  void backward_of(Context& ctx, const AttentionBackwardArgs& args, const Visible& step,
                   const KeysAndValues& kv, const KeysAndValues& dkv, bool accumulate) const {
    StackScope scope(ctx.temporaries);
    const auto queries = [&](const Tensor& x) { return x.slice(1, step.first_query, step.end_query); };
    const auto keys = [&](const Tensor& x) { return x.slice(1, 0, step.last_key); };
    AttentionBackwardArgs now = args;
    now.q = queries(args.q);
    now.out = queries(args.out);
    now.dout = queries(args.dout);
    now.dq = queries(args.dq);
    if (now.q.dim(1) != args.q.dim(1)) {
      const Tensor some = args.lse.slice(2, step.first_query, step.end_query);
      now.lse = ctx.temporaries.allocate(some.dtype(), some.shape());
      ctx.ops.cast(some, now.lse, ctx.stream);
    }
    now.k = keys(kv.k);
    now.v = keys(kv.v);
    now.dk = keys(dkv.k);
    now.dv = keys(dkv.v);
    now.causal = step.causal;
    now.first_key = step.first_key;
    now.end_key = step.end_key;
    now.accumulate = accumulate;
    if (accumulate) now.sinks = now.dsinks = {};
    if (accumulate)
      for (const Tensor& x : {dkv.k, dkv.v}) ctx.ops.fill(x, 0, ctx.stream);
    ctx.ops.attention_backward(now, ctx.stream);
  }

  // Adds the first `keys` keys of each sequence. It adds one sequence at a time, because only these rows are
  // contiguous.
  static void add_keys(Context& ctx, const KeysAndValues& part, const KeysAndValues& sum, int64_t keys) {
    const auto first = [&](const Tensor& x, int64_t b) { return x.slice(0, b, b + 1).slice(1, 0, keys); };
    for (int64_t b = 0; b < sum.k.dim(0); ++b) {
      ctx.ops.add(first(part.k, b), 1, first(sum.k, b), ctx.stream);
      ctx.ops.add(first(part.v, b), 1, first(sum.v, b), ctx.stream);
    }
  }
};

}  // namespace

std::shared_ptr<ContextAttention> make_ring_attention(const AttentionCoreOptions& options, GangPtr gang) {
  return std::make_shared<RingAttention>(options, std::move(gang));
}

}  // namespace gangway
