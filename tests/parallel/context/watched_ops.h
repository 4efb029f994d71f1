// Passes operations on to another Ops, and calls a function before each attention.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "support/ops_interceptor.h"

namespace gangway::test {

class WatchedOps final : public OpsInterceptor {
 public:
  // Gets the number of pairs of a query and a key that one call computes, for one head and one batch element.
  using Watcher = std::function<void(int64_t pairs)>;
  WatchedOps(Ops& inner, Watcher watcher) : OpsInterceptor(inner), watcher_(std::move(watcher)) {}

  void attention(const AttentionArgs& a, Stream& s) override {
    watcher_(pairs_of(a));
    OpsInterceptor::attention(a, s);
  }
  void attention_backward(const AttentionBackwardArgs& a, Stream& s) override {
    watcher_(pairs_of(a));
    OpsInterceptor::attention_backward(a, s);
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

  const Watcher watcher_;
};

}  // namespace gangway::test
