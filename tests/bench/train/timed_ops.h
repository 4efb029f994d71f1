// Operations that keep the processor time of each call by name, around another Ops of one thread; and the
// shapes of products.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/rank.h"
#include "support/ops_interceptor.h"

namespace gangway::bench {

struct ProductShape {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  DType c_dtype;
  auto operator<=>(const ProductShape&) const = default;
};

class TimedOps final : public test::OpsInterceptor {
 public:
  explicit TimedOps(std::unique_ptr<Ops> inner) : OpsInterceptor(*inner), owned_(std::move(inner)) {}

  std::map<std::string, double> seconds;  // by operation, until cleared
  std::map<ProductShape, int> products;   // calls by shape, head_loss's own not among them
  HeadLossArgs head;                      // the last one

  Ops& inner() { return *owned_; }

  void gemm(const GemmArgs& a, Stream& s) override {
    ++products[{a.c.dim(0), a.c.dim(1), a.a.dim(a.transpose_a ? 0 : 1), a.transpose_a, a.transpose_b,
                a.accumulate, a.c.dtype()}];
    OpsInterceptor::gemm(a, s);
  }
  void head_loss(const HeadLossArgs& a, Stack& temporaries, Stream& s) override {
    head = a;
    OpsInterceptor::head_loss(a, temporaries, s);
  }

 private:
  void intercept(const char* operation, const std::function<void()>& call) override {
    const double start = bench_cpu_seconds(0);
    call();
    seconds[operation] += bench_cpu_seconds(0) - start;
  }
  std::unique_ptr<Ops> owned_;
};

}  // namespace gangway::bench
