// Operations that keep the processor time of each call by name, around another Ops of one thread; and the
// shapes of products.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/rank.h"
#include "ops/ops.h"

namespace gangway::bench {

struct ProductShape {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  DType c_dtype;
  auto operator<=>(const ProductShape&) const = default;
};

class TimedOps final : public Ops {
 public:
  explicit TimedOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  std::map<std::string, double> seconds;  // by operation, until cleared
  std::map<ProductShape, int> products;   // calls by shape, head_loss's own not among them
  HeadLossArgs head;                      // the last one

  Device& device() override { return inner_->device(); }
  Ops& inner() { return *inner_; }

  void gemm(const GemmArgs& a, Stream& s) override {
    ++products[{a.c.dim(0), a.c.dim(1), a.a.dim(a.transpose_a ? 0 : 1), a.transpose_a, a.transpose_b,
                a.accumulate, a.c.dtype()}];
    timed("gemm", [&] { inner_->gemm(a, s); });
  }
  void rmsnorm(const RmsNormArgs& a, Stream& s) override {
    timed("rmsnorm", [&] { inner_->rmsnorm(a, s); });
  }
  void rmsnorm_backward(const RmsNormBackwardArgs& a, Stream& s) override {
    timed("rmsnorm_backward", [&] { inner_->rmsnorm_backward(a, s); });
  }
  void rope(const RopeArgs& a, Stream& s) override {
    timed("rope", [&] { inner_->rope(a, s); });
  }
  void swiglu(const SwigluArgs& a, Stream& s) override {
    timed("swiglu", [&] { inner_->swiglu(a, s); });
  }
  void swiglu_backward(const SwigluBackwardArgs& a, Stream& s) override {
    timed("swiglu_backward", [&] { inner_->swiglu_backward(a, s); });
  }
  void attention(const AttentionArgs& a, Stream& s) override {
    timed("attention", [&] { inner_->attention(a, s); });
  }
  void attention_merge(const AttentionMergeArgs& a, Stream& s) override {
    timed("attention_merge", [&] { inner_->attention_merge(a, s); });
  }
  void attention_backward(const AttentionBackwardArgs& a, Stream& s) override {
    timed("attention_backward", [&] { inner_->attention_backward(a, s); });
  }
  void embedding(const EmbeddingArgs& a, Stream& s) override {
    timed("embedding", [&] { inner_->embedding(a, s); });
  }
  void embedding_backward(const EmbeddingBackwardArgs& a, Stream& s) override {
    timed("embedding_backward", [&] { inner_->embedding_backward(a, s); });
  }
  void head_loss(const HeadLossArgs& a, Stack& temporaries, Stream& s) override {
    head = a;
    timed("head_loss", [&] { inner_->head_loss(a, temporaries, s); });
  }
  void adamw(const AdamWArgs& a, Stream& s) override {
    timed("adamw", [&] { inner_->adamw(a, s); });
  }
  void sgd(const SgdArgs& a, Stream& s) override {
    timed("sgd", [&] { inner_->sgd(a, s); });
  }
  void cast(const Tensor& x, const Tensor& y, Stream& s) override {
    timed("cast", [&] { inner_->cast(x, y, s); });
  }
  void fill(const Tensor& y, double v, Stream& s) override {
    timed("fill", [&] { inner_->fill(y, v, s); });
  }
  void add(const Tensor& x, double f, const Tensor& y, Stream& s) override {
    timed("add", [&] { inner_->add(x, f, y, s); });
  }
  void scale(const Tensor& y, double f, Stream& s) override {
    timed("scale", [&] { inner_->scale(y, f, s); });
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream& s) override {
    timed("column_sum", [&] { inner_->column_sum(x, y, s); });
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& s) override {
    timed("norm_power", [&] { inner_->norm_power(x, p, out, s); });
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first, double deviation, Stream& s) override {
    inner_->fill_normal(y, key, first, deviation, s);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& s) override {
    timed("id_range", [&] { inner_->id_range(ids, ignore, out, s); });
  }

 private:
  template <typename Call>
  void timed(const char* name, Call&& call) {
    const double start = bench_cpu_seconds(0);
    call();
    seconds[name] += bench_cpu_seconds(0) - start;
  }
  std::unique_ptr<Ops> inner_;
};

}  // namespace gangway::bench
