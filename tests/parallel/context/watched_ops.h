// Operations of another Ops, which also tells of each attention before it runs.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "ops/ops.h"

namespace gangway::test {

class WatchedOps final : public Ops {
 public:
  // Pairs of a query and a key of one head and batch element that one call computes.
  using Watcher = std::function<void(int64_t pairs)>;
  WatchedOps(Ops& inner, Watcher watcher) : inner_(inner), watcher_(std::move(watcher)) {}

  void attention(const AttentionArgs& a, Stream& s) override {
    watcher_(pairs_of(a));
    inner_.attention(a, s);
  }
  void attention_backward(const AttentionBackwardArgs& a, Stream& s) override {
    watcher_(pairs_of(a));
    inner_.attention_backward(a, s);
  }

  Device& device() override { return inner_.device(); }
  void gemm(const GemmArgs& a, Stream& s) override { inner_.gemm(a, s); }
  void rmsnorm(const RmsNormArgs& a, Stream& s) override { inner_.rmsnorm(a, s); }
  void rmsnorm_backward(const RmsNormBackwardArgs& a, Stream& s) override { inner_.rmsnorm_backward(a, s); }
  void rope(const RopeArgs& a, Stream& s) override { inner_.rope(a, s); }
  void swiglu(const SwigluArgs& a, Stream& s) override { inner_.swiglu(a, s); }
  void swiglu_backward(const SwigluBackwardArgs& a, Stream& s) override { inner_.swiglu_backward(a, s); }
  void attention_merge(const AttentionMergeArgs& a, Stream& s) override { inner_.attention_merge(a, s); }
  void embedding(const EmbeddingArgs& a, Stream& s) override { inner_.embedding(a, s); }
  void embedding_backward(const EmbeddingBackwardArgs& a, Stream& s) override {
    inner_.embedding_backward(a, s);
  }
  void head_loss(const HeadLossArgs& a, Stack& temporaries, Stream& s) override {
    inner_.head_loss(a, temporaries, s);
  }
  void adamw(const AdamWArgs& a, Stream& s) override { inner_.adamw(a, s); }
  void sgd(const SgdArgs& a, Stream& s) override { inner_.sgd(a, s); }
  void cast(const Tensor& x, const Tensor& y, Stream& s) override { inner_.cast(x, y, s); }
  void fill(const Tensor& y, double v, Stream& s) override { inner_.fill(y, v, s); }
  void add(const Tensor& x, double f, const Tensor& y, Stream& s) override { inner_.add(x, f, y, s); }
  void scale(const Tensor& y, double f, Stream& s) override { inner_.scale(y, f, s); }
  void column_sum(const Tensor& x, const Tensor& y, Stream& s) override { inner_.column_sum(x, y, s); }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& s) override {
    inner_.norm_power(x, p, out, s);
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first, double deviation, Stream& s) override {
    inner_.fill_normal(y, key, first, deviation, s);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& s) override {
    inner_.id_range(ids, ignore, out, s);
  }

 private:
  template <typename Args>
  static int64_t pairs_of(const Args& a) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < a.q.dim(1); ++i)
      for (int64_t j = 0; j < a.k.dim(1); ++j)
        if (!a.causal || a.k_offset + j <= a.q_offset + i) ++pairs;
    return pairs * a.q.dim(0) * a.q.dim(2);
  }

  Ops& inner_;
  const Watcher watcher_;
};

}  // namespace gangway::test
