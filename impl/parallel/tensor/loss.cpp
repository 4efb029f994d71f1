// Letters in names of tensors: T tokens, C tokens of a chunk, D model width, V ids of one rank, W ranks.
#include "parallel/tensor/loss.h"

#include <algorithm>

#include "nn/gradient.h"
#include "ops/check.h"

namespace gangway {

SplitLoss::SplitLoss(GangPtr gang, Channel channel, RedistributePtr input, Exchange exchange,
                     std::vector<int64_t> bounds)
    : gang_(std::move(gang)),
      channel_(channel),
      input_(std::move(input)),
      exchange_(exchange),
      bounds_(std::move(bounds)) {}

const char* SplitLoss::name() const {
  return exchange_ == Exchange::statistics ? "loss parallel" : "logits gathered";
}

void SplitLoss::check(const Spec& y, const Spec& labels) {
  HeadLoss::check({y.dtype, input_->forward_plan(y.shape)->after}, labels);
}

void SplitLoss::run(Context& ctx, const HeadLossArgs& args) {
  const StackScope scope(ctx.temporaries);
  const Tensor x = input_->forward_one(ctx, args.x, nullptr);
  HeadLossArgs whole = args;
  whole.x = x.flatten2();
  if (!args.dx) return run_chunks(ctx, whole);
  const bool moves = !input_->backward_plan(x.shape())->moves.empty();
  const Tensor dx = moves ? ctx.temporaries.allocate(x.dtype(), x.shape()) : args.dx;
  whole.dx = dx.flatten2();
  run_chunks(ctx, whole);
  Redistribute::Started sum = input_->start_backward(ctx, dx, args.dx);
  input_->finish(ctx, sum);
}

void SplitLoss::run_chunks(Context& ctx, const HeadLossArgs& args) const {
  const StackScope scope(ctx.temporaries);
  const int64_t tokens = args.x.dim(0);
  int64_t most_ids = 0;
  for (int rank = 0; rank < gang_->size(); ++rank) most_ids = std::max(most_ids, id_count(rank));
  const Tensor logits = head_loss_logits(args, ctx.temporaries, most_ids);
  for (int64_t t = 0; t < tokens; t += logits.dim(0)) {
    const int64_t rows = std::min(logits.dim(0), tokens - t);
    const StackScope chunk_scope(ctx.temporaries);
    LossTerms terms = args.terms;
    for (Tensor* x : {&terms.weights, &terms.log_probs})
      if (*x) *x = x->slice(0, t, t + rows);
    run_chunk(ctx, args,
              {.x_CD = args.x.slice(0, t, t + rows),
               .logits_CV = logits.slice(0, 0, rows),
               .labels_C = args.labels.slice(0, t, t + rows),
               .dx_CD = args.dx ? args.dx.slice(0, t, t + rows) : Tensor(),
               .terms = terms},
              t > 0 || args.dw_accumulate);
  }
  if (tokens == 0 && args.dw && !args.dw_accumulate) ctx.ops.fill(args.dw, 0, ctx.stream);
}

void SplitLoss::run_chunk(Context& ctx, const HeadLossArgs& args, const Chunk& given, bool accumulate) const {
  Chunk chunk = given;
  ctx.ops.gemm({.a = chunk.x_CD, .b = args.w, .c = chunk.logits_CV, .bias = {}, .transpose_b = true},
               ctx.stream);
  const Statistics statistics = statistics_of_all(ctx, chunk);
  ctx.ops.loss_join({.logits = chunk.logits_CV,
                     .labels = chunk.labels_C,
                     .statistics = statistics.all,
                     .loss = args.loss,
                     .weight = args.weight,
                     .part = gang_->rank(),
                     .first_id = first_id(gang_->rank()),
                     .ids = bounds_.back(),
                     .scale = args.scale,
                     .ignore = args.ignore,
                     .terms = chunk.terms,
                     .logit_sums = statistics.logit_sums},
                    ctx.stream);
  if (!args.dx && !args.dw) return;
  Tensor gradient = chunk.logits_CV;
  if (gradient.dtype() != args.x.dtype()) {
    gradient = ctx.temporaries.allocate(args.x.dtype(), gradient.shape());
    ctx.ops.cast(chunk.logits_CV, gradient, ctx.stream);
  }
  if (args.dx) ctx.ops.gemm({.a = gradient, .b = args.w, .c = chunk.dx_CD, .bias = {}}, ctx.stream);
  if (args.dw)
    ctx.ops.gemm({.a = gradient,
                  .b = chunk.x_CD,
                  .c = args.dw,
                  .bias = {},
                  .transpose_a = true,
                  .accumulate = accumulate},
                 ctx.stream);
}

SplitLoss::Statistics SplitLoss::statistics_of_all(Context& ctx, Chunk& chunk) const {
  const int64_t rows = chunk.logits_CV.dim(0);
  const bool smooths = chunk.terms.label_smoothing != 0;
  const auto sums = [&](int64_t ranks) {
    return smooths ? ctx.temporaries.allocate(DType::f64, Shape{ranks, rows}) : Tensor();
  };
  const auto part = [&](int rank, const Tensor& logits, const Tensor& statistics, const Tensor& logit_sums) {
    ctx.ops.loss_part({.logits = logits,
                       .labels = chunk.labels_C,
                       .statistics = statistics,
                       .first_id = first_id(rank),
                       .cap = chunk.terms.cap,
                       .logit_sums = logit_sums},
                      ctx.stream);
  };
  if (exchange_ == Exchange::statistics) {
    const Tensor own = ctx.temporaries.allocate(DType::f64, Shape{3, rows}), own_sums = sums(1);
    part(gang_->rank(), chunk.logits_CV, own, smooths ? own_sums.reshape(Shape{rows}) : Tensor());
    const Tensor all = exchange(ctx, own);
    if (!smooths) return {all, {}};
    return {all, sum_of_rows(ctx, exchange(ctx, own_sums).reshape(Shape{gang_->size(), rows}))};
  }
  const Tensor all = ctx.temporaries.allocate(DType::f64, Shape{gang_->size(), 3, rows});
  const Tensor all_sums = sums(gang_->size());
  const Values logits = exchange_logits(ctx, chunk.logits_CV);
  for (int rank = 0; rank < gang_->size(); ++rank)
    part(rank, logits[static_cast<size_t>(rank)], all.slice(0, rank, rank + 1).reshape(Shape{3, rows}),
         smooths ? all_sums.slice(0, rank, rank + 1).reshape(Shape{rows}) : Tensor());
  chunk.logits_CV = logits[static_cast<size_t>(gang_->rank())];
  return {all, smooths ? sum_of_rows(ctx, all_sums) : Tensor()};
}

// Adds all rows to the first one, in their order, and returns it.
Tensor SplitLoss::sum_of_rows(Context& ctx, const Tensor& x) {
  const auto row = [&](int64_t i) { return x.slice(0, i, i + 1).reshape(Shape{x.dim(1)}); };
  for (int64_t i = 1; i < x.dim(0); ++i) ctx.ops.add(row(i), 1, row(0), ctx.stream);
  return row(0);
}

Tensor SplitLoss::exchange(Context& ctx, const Tensor& own) const {
  const Tensor all = ctx.temporaries.allocate(own.dtype(), Shape{gang_->size(), own.dim(0), own.dim(1)});
  const auto ranks = static_cast<size_t>(gang_->size()), each = static_cast<size_t>(own.count());
  gather(ctx, own, all, std::vector<size_t>(ranks, each));
  return all;
}

Values SplitLoss::exchange_logits(Context& ctx, const Tensor& own) const {
  const int64_t rows = own.dim(0);
  const Tensor all = ctx.temporaries.allocate(own.dtype(), Shape{rows * bounds_.back()});
  Values parts;
  std::vector<size_t> counts;
  for (int rank = 0; rank < gang_->size(); ++rank) {
    const Tensor part = all.slice(0, rows * first_id(rank), rows * first_id(rank + 1));
    parts.push_back(part.reshape(Shape{rows, id_count(rank)}));
    counts.push_back(static_cast<size_t>(part.count()));
  }
  gather(ctx, own, all, counts);
  return parts;
}

void SplitLoss::gather(Context& ctx, const Tensor& own, const Tensor& all,
                       const std::vector<size_t>& counts) const {
  Collective record;
  record.op = CollectiveOp::all_gather;
  record.in = own.raw();
  record.out = all.raw();
  record.count = counts.front();
  const bool equal = std::all_of(counts.begin(), counts.end(), [&](size_t n) { return n == counts.front(); });
  if (!equal) record.counts = counts.data();
  record.dtype = own.dtype();
  const WorkPtr work = gang_->run(channel_, record, &ctx.stream);
  work->order(ctx.stream);
  work->order_input(ctx.stream);
}

}  // namespace gangway
