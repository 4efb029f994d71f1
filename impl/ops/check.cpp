#include "ops/check.h"

#include <algorithm>
#include <initializer_list>

#include "ops/codes.h"

namespace gangway {
namespace {

enum class Rows : uint8_t { contiguous, strided, any };

std::string wanted(DType dtype, std::initializer_list<int64_t> dims) {
  return name(dtype) + " " + Shape(dims).text();
}

void need_rows(const char* what, const Tensor& t, Rows rows) {
  if (rows == Rows::any || t.count() == 0) return;
  if (rows == Rows::contiguous) {
    if (!t.contiguous()) fail(Code::internal, what, " is ", t.text(), " with gaps, not contiguous");
  } else if (t.dim(-1) > 1 && t.stride(-1) != 1) {
    fail(Code::internal, what, " is ", t.text(), " with stride ", t.stride(-1), " in its last dim, not 1");
  }
}

void need(const char* what, const Tensor& t, DType dtype, std::initializer_list<int64_t> dims,
          Rows rows = Rows::contiguous) {
  if (!t) fail(Code::internal, what, " is absent, not ", wanted(dtype, dims));
  if (t.dtype() != dtype || !(t.shape() == Shape(dims)))
    fail(Code::internal, what, " is ", t.text(), ", not ", wanted(dtype, dims));
  need_rows(what, t, rows);
}

void need_rank(const char* what, const Tensor& t, int rank, Rows rows = Rows::contiguous) {
  if (!t) fail(Code::internal, what, " is absent");
  if (t.rank() != rank) fail(Code::internal, what, " is ", t.text(), ", not of ", rank, " dims");
  need_rows(what, t, rows);
}

void need_dtype(const char* what, const Tensor& t, std::initializer_list<DType> dtypes) {
  if (!t) fail(Code::internal, what, " is absent");
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype()) == dtypes.end())
    fail(Code::internal, what, " is ", t.text(), ", a dtype that this operation does not take");
}

// Checks a flat shard that belongs to another: it has the same number of elements and no gaps.
void need_beside(const char* what, const Tensor& t, const Tensor& x) {
  if (!t) fail(Code::internal, what, " is absent");
  if (t.count() != x.count()) fail(Code::internal, what, " is ", t.text(), " beside ", x.text());
  need_rows(what, t, Rows::contiguous);
}

void need_float(const char* what, const Tensor& t) {
  need_dtype(what, t, {DType::f64, DType::f32, DType::bf16, DType::f16});
}
void need_statistics(const char* what, const Tensor& t) { need_dtype(what, t, {DType::f64, DType::f32}); }

void need_state(const std::string& what, const Tensor& t, const Tensor& p) {
  need_float(what.c_str(), t);
  need_beside(what.c_str(), t, p);
}
// Checks the arguments that the steps of all optimizers have.
template <typename Args>
void need_step(const std::string& operation, const Args& args) {
  need_statistics((operation + ".p").c_str(), args.p);
  need_beside((operation + ".p").c_str(), args.p, args.p);
  need_state(operation + ".g", args.g, args.p);
  if (args.copy) need_state(operation + ".copy", args.copy, args.p);
  GW_CHECK(args.control.step, >=, 1);
}

}  // namespace

DType accumulator(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

void check(const GemmArgs& args) {
  need_rank("gemm.a", args.a, 2, Rows::strided);
  need_rank("gemm.c", args.c, 2, Rows::strided);
  need_float("gemm.a", args.a);
  const int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  const DType dtype = args.a.dtype();
  need("gemm.a", args.a, dtype, {args.transpose_a ? k : m, args.transpose_a ? m : k}, Rows::strided);
  need("gemm.b", args.b, dtype, {args.transpose_b ? n : k, args.transpose_b ? k : n}, Rows::strided);
  need_dtype("gemm.c", args.c, {dtype, accumulator(dtype)});
  if (args.bias) need("gemm.bias", args.bias, dtype, {n});
}

namespace {

template <typename Args>
void need_key_ranges(const std::string& operation, const Args& args, int64_t batch, int64_t queries) {
  GW_CHECK(static_cast<bool>(args.first_key), ==, static_cast<bool>(args.end_key));
  if (!args.first_key) return;
  const int64_t rows = args.first_key.dim(0) == 1 ? 1 : batch;
  need((operation + ".first_key").c_str(), args.first_key, DType::i32, {rows, queries});
  need((operation + ".end_key").c_str(), args.end_key, DType::i32, {rows, queries});
}

// `tokens` is the number of rows of logits, and `wide` the dtype of sums.
void need_terms(const std::string& operation, const LossTerms& terms, DType wide, int64_t tokens) {
  if (terms.weights) need((operation + ".weights").c_str(), terms.weights, wide, {tokens});
  if (terms.log_probs) need((operation + ".log_probs").c_str(), terms.log_probs, wide, {tokens});
}

}  // namespace

void check(const RmsNormArgs& args) {
  need_rank("rmsnorm.x", args.x, 2);
  need_float("rmsnorm.x", args.x);
  const int64_t t = args.x.dim(0), d = args.x.dim(1);
  const DType dtype = args.x.dtype();
  if (args.residual) need("rmsnorm.residual", args.residual, dtype, {t, d});
  if (args.residual) need("rmsnorm.sum", args.sum, dtype, {t, d});
  need("rmsnorm.weight", args.weight, dtype, {d});
  need("rmsnorm.y", args.y, dtype, {t, d});
  need("rmsnorm.rstd", args.rstd, accumulator(dtype), {t});
  if (args.squares) {
    need("rmsnorm.squares", args.squares, accumulator(dtype), {t});
    GW_CHECK(args.width, >=, d);
    GW_CHECK(static_cast<bool>(args.residual), ==, false);
  }
}

void check(const RmsNormBackwardArgs& args) {
  need_rank("rmsnorm_backward.x", args.x, 2);
  need_float("rmsnorm_backward.x", args.x);
  const int64_t t = args.x.dim(0), d = args.x.dim(1);
  const DType dtype = args.x.dtype();
  need("rmsnorm_backward.dy", args.dy, dtype, {t, d});
  need("rmsnorm_backward.weight", args.weight, dtype, {d});
  need("rmsnorm_backward.rstd", args.rstd, accumulator(dtype), {t});
  if (args.dsum) need("rmsnorm_backward.dsum", args.dsum, dtype, {t, d});
  if (args.dx) need("rmsnorm_backward.dx", args.dx, dtype, {t, d});
  if (args.y) {
    need("rmsnorm_backward.y", args.y, dtype, {t, d});
    GW_CHECK(static_cast<bool>(args.dx), ==, true);
  }
  if (args.dweight) need("rmsnorm_backward.dweight", args.dweight, accumulator(dtype), {d});
  if (args.dots) {
    need("rmsnorm_backward.dots", args.dots, accumulator(dtype), {t});
    GW_CHECK(args.width, >=, d);
  }
}

void check(const RowDotArgs& args) {
  need_rank("row_dot.x", args.x, 2);
  need_float("row_dot.x", args.x);
  const int64_t t = args.x.dim(0), d = args.x.dim(1);
  need("row_dot.y", args.y, args.x.dtype(), {t, d});
  if (args.weight) need("row_dot.weight", args.weight, args.x.dtype(), {d});
  need("row_dot.out", args.out, accumulator(args.x.dtype()), {t});
}

void check(const LayerNormArgs& args) {
  need_rank("layernorm.x", args.x, 2);
  need_float("layernorm.x", args.x);
  const int64_t t = args.x.dim(0), d = args.x.dim(1);
  const DType dtype = args.x.dtype();
  if (args.residual) need("layernorm.residual", args.residual, dtype, {t, d});
  if (args.residual) need("layernorm.sum", args.sum, dtype, {t, d});
  need("layernorm.weight", args.weight, dtype, {d});
  need("layernorm.bias", args.bias, dtype, {d});
  need("layernorm.y", args.y, dtype, {t, d});
  need("layernorm.mean", args.mean, accumulator(dtype), {t});
  need("layernorm.rstd", args.rstd, accumulator(dtype), {t});
}

void check(const LayerNormBackwardArgs& args) {
  need_rank("layernorm_backward.x", args.x, 2);
  need_float("layernorm_backward.x", args.x);
  const int64_t t = args.x.dim(0), d = args.x.dim(1);
  const DType dtype = args.x.dtype();
  need("layernorm_backward.dy", args.dy, dtype, {t, d});
  need("layernorm_backward.weight", args.weight, dtype, {d});
  need("layernorm_backward.mean", args.mean, accumulator(dtype), {t});
  need("layernorm_backward.rstd", args.rstd, accumulator(dtype), {t});
  if (args.dsum) need("layernorm_backward.dsum", args.dsum, dtype, {t, d});
  if (args.dx) need("layernorm_backward.dx", args.dx, dtype, {t, d});
  if (args.y) {
    need("layernorm_backward.y", args.y, dtype, {t, d});
    need("layernorm_backward.bias", args.bias, dtype, {d});
    GW_CHECK(static_cast<bool>(args.dx), ==, true);
  }
  if (args.dweight) need("layernorm_backward.dweight", args.dweight, accumulator(dtype), {d});
  if (args.dbias) need("layernorm_backward.dbias", args.dbias, accumulator(dtype), {d});
}

void check(const RopeArgs& args) {
  need_rank("rope.x", args.x, 2, Rows::strided);
  need_float("rope.x", args.x);
  const DType dtype = args.x.dtype();
  const int64_t t = args.x.dim(0), width = args.x.dim(1);
  GW_CHECK(args.heads, >=, 1);
  GW_CHECK(width % (2 * args.heads), ==, 0);
  need("rope.y", args.y, dtype, {t, width}, Rows::strided);
  need_rank("rope.cos", args.cos, 2);
  const int64_t positions = args.cos.dim(0), half = args.cos.dim(1);
  GW_CHECK(half, <=, width / args.heads / 2);
  need("rope.cos", args.cos, accumulator(dtype), {positions, half});
  need("rope.sin", args.sin, accumulator(dtype), {positions, half});
  if (args.positions) {
    need_rank("rope.positions", args.positions, 1);
    need("rope.positions", args.positions, DType::i32, {args.positions.dim(0)});
    if (t != 0) GW_CHECK(args.positions.dim(0), >=, 1);
    if (t != 0) GW_CHECK(t % args.positions.dim(0), ==, 0);
  } else {
    GW_CHECK(args.sequence, >=, 1);
    GW_CHECK(std::min(args.sequence, t), <=, positions);
  }
}

void check(const SwigluArgs& args) {
  need_rank("swiglu.gate", args.gate, 2, Rows::strided);
  need_float("swiglu.gate", args.gate);
  const int64_t t = args.gate.dim(0), f = args.gate.dim(1);
  need("swiglu.up", args.up, args.gate.dtype(), {t, f}, Rows::strided);
  need("swiglu.y", args.y, args.gate.dtype(), {t, f});
}

void check(const SwigluBackwardArgs& args) {
  need_rank("swiglu_backward.gate", args.gate, 2, Rows::strided);
  need_float("swiglu_backward.gate", args.gate);
  const DType dtype = args.gate.dtype();
  const int64_t t = args.gate.dim(0), f = args.gate.dim(1);
  need("swiglu_backward.up", args.up, dtype, {t, f}, Rows::strided);
  need("swiglu_backward.dy", args.dy, dtype, {t, f});
  need("swiglu_backward.dgate", args.dgate, dtype, {t, f}, Rows::strided);
  need("swiglu_backward.dup", args.dup, dtype, {t, f}, Rows::strided);
  if (args.y) need("swiglu_backward.y", args.y, dtype, {t, f});
}

void check(const ActivationArgs& args) {
  need_rank("activation.x", args.x, 2);
  need_float("activation.x", args.x);
  need("activation.y", args.y, args.x.dtype(), {args.x.dim(0), args.x.dim(1)});
}

void check(const ActivationBackwardArgs& args) {
  need_rank("activation_backward.x", args.x, 2);
  need_float("activation_backward.x", args.x);
  const int64_t t = args.x.dim(0), f = args.x.dim(1);
  need("activation_backward.dy", args.dy, args.x.dtype(), {t, f});
  need("activation_backward.dx", args.dx, args.x.dtype(), {t, f});
  if (args.y) need("activation_backward.y", args.y, args.x.dtype(), {t, f});
}

void check(const DropoutArgs& args) {
  need_rank("dropout.x", args.x, 2);
  need_float("dropout.x", args.x);
  const int64_t t = args.x.dim(0), d = args.x.dim(1);
  need("dropout.y", args.y, args.x.dtype(), {t, d});
  if (args.rows) need("dropout.rows", args.rows, DType::i64, {t});
  GW_CHECK(args.first_column, >=, 0);
  GW_CHECK(args.first_column + d, <=, args.columns);
  GW_CHECK(args.probability, >=, 0);
  GW_CHECK(args.probability, <, 1);
}

void check(const AttentionArgs& args) {
  need_rank("attention.q", args.q, 4, Rows::strided);
  need_rank("attention.k", args.k, 4, Rows::strided);
  need_float("attention.q", args.q);
  const DType dtype = args.q.dtype();
  const int64_t b = args.q.dim(0), sq = args.q.dim(1), h = args.q.dim(2), width = args.q.dim(3);
  const int64_t sk = args.k.dim(1), g = args.k.dim(2);
  GW_CHECK(g, >=, 1);
  GW_CHECK(h % g, ==, 0);
  need("attention.k", args.k, dtype, {b, sk, g, width}, Rows::strided);
  need("attention.v", args.v, dtype, {b, sk, g, width}, Rows::strided);
  need("attention.out", args.out, dtype, {b, sq, h, width}, Rows::strided);
  if (args.lse) need("attention.lse", args.lse, accumulator(dtype), {b, h, sq});
  need_key_ranges("attention", args, b, sq);
  if (args.sinks) need("attention.sinks", args.sinks, dtype, {h});
}

void check(const AttentionMergeArgs& args) {
  need_rank("attention_merge.part", args.part, 4, Rows::strided);
  need_float("attention_merge.part", args.part);
  const DType wide = accumulator(args.part.dtype());
  const int64_t b = args.part.dim(0), s = args.part.dim(1), h = args.part.dim(2), width = args.part.dim(3);
  need("attention_merge.out", args.out, wide, {b, s, h, width}, Rows::strided);
  need("attention_merge.lse", args.lse, wide, {b, h, s}, Rows::any);
  need("attention_merge.part_lse", args.part_lse, wide, {b, h, s}, Rows::any);
}

void check(const AttentionBackwardArgs& args) {
  check(AttentionArgs{args.q, args.k, args.v, args.out, args.lse, args.scale, args.causal, args.q_offset,
                      args.k_offset, args.first_key, args.end_key, args.cap, args.sinks});
  const DType dtype = args.q.dtype();
  const int64_t b = args.q.dim(0), sq = args.q.dim(1), h = args.q.dim(2), width = args.q.dim(3);
  const int64_t sk = args.k.dim(1), g = args.k.dim(2);
  need("attention_backward.lse", args.lse, accumulator(dtype), {b, h, sq});
  need("attention_backward.dout", args.dout, dtype, {b, sq, h, width}, Rows::strided);
  need_dtype("attention_backward.dq", args.dq,
             {args.accumulate ? accumulator(dtype) : dtype, accumulator(dtype)});
  need_dtype("attention_backward.dk", args.dk,
             {args.accumulate ? accumulator(dtype) : dtype, accumulator(dtype)});
  need("attention_backward.dq", args.dq, args.dq.dtype(), {b, sq, h, width}, Rows::strided);
  need("attention_backward.dk", args.dk, args.dk.dtype(), {b, sk, g, width}, Rows::strided);
  need("attention_backward.dv", args.dv, args.dk.dtype(), {b, sk, g, width}, Rows::strided);
  if (args.dsinks) {
    need("attention_backward.sinks", args.sinks, dtype, {h});
    need("attention_backward.dsinks", args.dsinks, accumulator(dtype), {h});
  }
  if (args.workspace)
    need("attention_backward.workspace", args.workspace, DType::u8, {args.workspace.count()});
}

void check(const EmbeddingArgs& args) {
  need_rank("embedding.table", args.table, 2);
  need_rank("embedding.ids", args.ids, 1);
  need_float("embedding.table", args.table);
  need("embedding.ids", args.ids, DType::i64, {args.ids.dim(0)});
  need("embedding.y", args.y, args.table.dtype(), {args.ids.dim(0), args.table.dim(1)});
  GW_CHECK(args.first_row, >=, 0);
  if (args.rows != 0) GW_CHECK(args.first_row + args.table.dim(0), <=, args.rows);
}

void check(const EmbeddingBackwardArgs& args) {
  need_rank("embedding_backward.dtable", args.dtable, 2);
  need_rank("embedding_backward.ids", args.ids, 1);
  need_float("embedding_backward.dy", args.dy);
  const DType dtype = args.dy.dtype();
  need("embedding_backward.ids", args.ids, DType::i64, {args.ids.dim(0)});
  need("embedding_backward.dy", args.dy, dtype, {args.ids.dim(0), args.dtable.dim(1)});
  need_dtype("embedding_backward.dtable", args.dtable, {accumulator(dtype)});
}

void check(const HeadLossArgs& args) {
  need_rank("head_loss.x", args.x, 2);
  need_rank("head_loss.w", args.w, 2);
  need_float("head_loss.x", args.x);
  const DType dtype = args.x.dtype();
  const int64_t t = args.x.dim(0), d = args.x.dim(1), v = args.w.dim(0);
  need("head_loss.w", args.w, dtype, {v, d});
  need("head_loss.labels", args.labels, DType::i64, {t});
  if (args.loss) need("head_loss.loss", args.loss, DType::f64, {1});
  if (args.weight) need("head_loss.weight", args.weight, DType::f64, {1});
  if (args.dx) need("head_loss.dx", args.dx, dtype, {t, d});
  if (args.dw) need("head_loss.dw", args.dw, accumulator(dtype), {v, d});
  need_terms("head_loss", args.terms, accumulator(dtype), t);
}

void check(const LossPartArgs& args) {
  need_rank("loss_part.logits", args.logits, 2);
  need_statistics("loss_part.logits", args.logits);
  const int64_t tokens = args.logits.dim(0);
  need("loss_part.labels", args.labels, DType::i64, {tokens});
  need("loss_part.statistics", args.statistics, DType::f64, {3, tokens});
  if (args.logit_sums) need("loss_part.logit_sums", args.logit_sums, DType::f64, {tokens});
}

void check(const LossJoinArgs& args) {
  need_rank("loss_join.logits", args.logits, 2);
  need_statistics("loss_join.logits", args.logits);
  const int64_t tokens = args.logits.dim(0);
  need("loss_join.labels", args.labels, DType::i64, {tokens});
  need_rank("loss_join.statistics", args.statistics, 3);
  need("loss_join.statistics", args.statistics, DType::f64, {args.statistics.dim(0), 3, tokens});
  GW_CHECK(args.part, >=, 0);
  GW_CHECK(args.part, <, args.statistics.dim(0));
  if (args.loss) need("loss_join.loss", args.loss, DType::f64, {1});
  if (args.weight) need("loss_join.weight", args.weight, DType::f64, {1});
  need_terms("loss_join", args.terms, args.logits.dtype(), tokens);
  if (args.terms.label_smoothing != 0) need("loss_join.logit_sums", args.logit_sums, DType::f64, {tokens});
}

void check(const DivideByNormArgs& args) {
  check_scale(args.y);
  need("divide_by_norm.power", args.power, DType::f64, {1});
}

void check(const ChecksumArgs& args) {
  need_statistics("checksum.x", args.x);
  need_rows("checksum.x", args.x, Rows::contiguous);
  need("checksum.sum", args.sum, DType::i64, {1});
}

void check(const AdamWArgs& args) {
  need_step("adamw", args);
  need_state("adamw.m", args.m, args.p);
  need_state("adamw.v", args.v, args.p);
}

void check(const AdamW8bitArgs& args) {
  need_step("adamw8bit", args);
  const int64_t count = args.p.count();
  GW_CHECK(args.columns, >=, 1);
  GW_CHECK(count % args.columns, ==, 0);
  const int64_t blocks = count / args.columns * code_blocks(args.columns);
  need("adamw8bit.m", args.m, DType::u8, {count});
  need("adamw8bit.v", args.v, DType::u8, {count});
  need("adamw8bit.m_scale", args.m_scale, DType::f32, {blocks});
  need("adamw8bit.v_scale", args.v_scale, DType::f32, {blocks});
}

void check(const FactorSumsArgs& args) {
  need_rank("factor_sums.g", args.g, 3);
  need_float("factor_sums.g", args.g);
  const int64_t b = args.g.dim(0), r = args.g.dim(1), c = args.g.dim(2);
  if (args.rows) need("factor_sums.rows", args.rows, DType::f64, {b, r});
  if (args.columns) need("factor_sums.columns", args.columns, DType::f64, {b, c});
}

void check(const AdafactorNormArgs& args) {
  need_rank("adafactor.g", args.g, 3);
  need_float("adafactor.g", args.g);
  const int64_t b = args.g.dim(0), r = args.g.dim(1), c = args.g.dim(2);
  need_statistics("adafactor.rows", args.rows);
  need("adafactor.rows", args.rows, args.rows.dtype(), {b, r});
  if (args.columns) {
    need("adafactor.columns", args.columns, args.rows.dtype(), {b, c});
    need("adafactor.totals", args.totals, DType::f64, {b});
  } else {
    GW_CHECK(c, ==, 1);
  }
  need("adafactor.squares", args.squares, DType::f64, {1});
}

void check(const AdafactorArgs& args) {
  check(args.update);
  need_statistics("adafactor.p", args.p);
  need_beside("adafactor.p", args.p, args.update.g);
  if (args.copy) need_state("adafactor.copy", args.copy, args.p);
  need("adafactor.p_squares", args.p_squares, DType::f64, {1});
  GW_CHECK(args.control.step, >=, 1);
}

void check(const LionArgs& args) {
  need_step("lion", args);
  need_state("lion.m", args.m, args.p);
}

void check(const SgdArgs& args) {
  need_step("sgd", args);
  if (args.momentum != 0) need_state("sgd.m", args.m, args.p);
}

void check_cast(const Tensor& x, const Tensor& y) {
  GW_CHECK(static_cast<bool>(x), ==, true);
  GW_CHECK(static_cast<bool>(y), ==, true);
  if (!(x.shape() == y.shape())) fail(Code::internal, "cast: ", x.text(), " into ", y.text());
  if (x.dtype() == y.dtype()) return;
  need_float("cast.x", x);
  need_float("cast.y", y);
}

void check_fill(const Tensor& y) {
  need_dtype("fill.y", y, {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64});
  need_rows("fill.y", y, Rows::contiguous);
}

void check_add(const Tensor& x, const Tensor& y) {
  need_float("add.x", x);
  need_float("add.y", y);
  need_beside("add.x", x, y);
  need_beside("add.y", y, x);
}

void check_scale(const Tensor& y) {
  need_float("scale.y", y);
  need_rows("scale.y", y, Rows::contiguous);
}

void check_column_sum(const Tensor& x, const Tensor& y) {
  need_rank("column_sum.x", x, 2);
  need_float("column_sum.x", x);
  need("column_sum.y", y, accumulator(x.dtype()), {x.dim(1)});
}

void check_norm_power(const Tensor& x, double p, const Tensor& out) {
  need_float("norm_power.x", x);
  need_rows("norm_power.x", x, Rows::contiguous);
  GW_CHECK(p, >, 0);
  need("norm_power.out", out, DType::f64, {1});
}

void check_fill_normal(const Tensor& y) {
  need_float("fill_normal.y", y);
  need_rows("fill_normal.y", y, Rows::contiguous);
}

void check_id_range(const Tensor& ids, const Tensor& out) {
  need_rank("id_range.ids", ids, 1);
  need("id_range.ids", ids, DType::i64, {ids.dim(0)});
  need("id_range.out", out, DType::i64, {3});
}

}  // namespace gangway
