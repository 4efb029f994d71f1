// On a real GPU: attention by cuDNN beside the own kernels, which take the same numbers where an address is not aligned.
// Skipped where there is no device, or no cuDNN.
#include <cstdlib>

#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

class AttentionOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    setenv("GANGWAY_CUDNN", "auto", 1);
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
    try {
      bench_ = std::make_unique<Bench>();
    } catch (const Error& error) {
      GTEST_SKIP() << error.message();
    }
    const std::string paths = describe_paths(*bench_->ops);
    if (paths.find("own kernels where") == std::string::npos) GTEST_SKIP() << paths;
  }
  std::unique_ptr<Bench> bench_;
};

struct Shapes {
  int64_t rows, heads, groups, width;
  bool causal;
};

// `gap`: elements before the first one; 1 keeps cuDNN away.
struct Call {
  Call(Bench& bench, DType dtype, const Shapes& s, int64_t gap) : shapes(s) {
    const auto heads = [&](int64_t count, uint32_t seed) {
      const Tensor t = bench.empty(dtype, {2, s.rows, count, s.width + 8 * gap}).slice(3, gap, gap + s.width);
      assign(t, random_values(static_cast<size_t>(t.count()), seed));
      return t;
    };
    q = heads(s.heads, 1);
    k = heads(s.groups, 2);
    v = heads(s.groups, 3);
    dout = heads(s.heads, 4);
    out = heads(s.heads, 5);
    dq = heads(s.heads, 6);
    dk = heads(s.groups, 7);
    dv = heads(s.groups, 8);
    lse = bench.empty(DType::f32, {2, s.heads, s.rows});
  }
  void run(Bench& bench) const {
    const double scale = 1 / std::sqrt(static_cast<double>(shapes.width));
    bench.ops->attention({q, k, v, out, lse, scale, shapes.causal, 0, 0}, bench.stream());
    AttentionBackwardArgs args = {q, k, v, out, lse, dout, dq, dk, dv, scale, shapes.causal, 0, 0, false};
    if (const size_t bytes = bench.ops->attention_workspace_bytes(args); bytes > 0)
      args.workspace = bench.empty(DType::u8, {static_cast<int64_t>(bytes)});
    bench.ops->attention_backward(args, bench.stream());
  }
  Shapes shapes;
  Tensor q, k, v, out, lse, dout, dq, dk, dv;
};

TEST_F(AttentionOnGpu, CudnnEqualsTheOwnKernels) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Shapes& s :
         {Shapes{128, 4, 4, 64, true}, Shapes{512, 8, 2, 128, true}, Shapes{384, 6, 3, 80, false}}) {
      const Call cudnn(*bench_, dtype, s, 0), own(*bench_, dtype, s, 1);
      cudnn.run(*bench_);
      own.run(*bench_);
      const double tolerance = 5 * rounding_of(dtype);
      expect_close(cudnn.out, values(own.out), tolerance, "out");
      expect_close(cudnn.lse, values(own.lse), 1e-4, "lse");
      expect_close(cudnn.dq, values(own.dq), tolerance, "dq");
      expect_close(cudnn.dk, values(own.dk), tolerance, "dk");
      expect_close(cudnn.dv, values(own.dv), tolerance, "dv");
    }
  const std::string paths = describe_paths(*bench_->ops);
  EXPECT_NE(paths.find(": cuDNN, "), std::string::npos) << paths;
}

TEST_F(AttentionOnGpu, CudnnsBackwardGivesTheSameBitsAgain) {
  const Shapes s{512, 8, 2, 128, true};
  const Call first(*bench_, DType::bf16, s, 0), second(*bench_, DType::bf16, s, 0);
  first.run(*bench_);
  second.run(*bench_);
  EXPECT_EQ(values(first.dq), values(second.dq));
  EXPECT_EQ(values(first.dk), values(second.dk));
  EXPECT_EQ(values(first.dv), values(second.dv));
}

}  // namespace
}  // namespace gangway
