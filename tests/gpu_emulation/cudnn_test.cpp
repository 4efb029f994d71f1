// The module for CUDA with cuDNN on the software GPU, which runs plans as plain loops: who
// computes a call, how often plans are made, and what happens when cuDNN refuses or fails.
#include <cstdlib>

#include "base/error_of.h"
#include "base/log.h"
#include "gpu_emulation/emulator.h"
#include "ops/ops_testing.h"
#include "support/placed.h"

namespace gangway {
namespace {

using namespace ops_testing;

class CudnnPath : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
    unsetenv("GANGWAY_CUDNN");
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  }
  void SetUp() override {
    const auto old = log_lines(0);
    first_line_ = old.empty() ? 0 : old.back().number + 1;
    plans_before_ = gpu_emulation::calls("cudnnBackendFinalize");
    runs_before_ = gpu_emulation::calls("cudnnBackendExecute");
  }
  void TearDown() override { gpu_emulation::reset(); }
  int64_t plans() const { return gpu_emulation::calls("cudnnBackendFinalize") - plans_before_; }
  // Returns the lines of the log since the test began that have these words.
  int lines(const std::string& words) const {
    int count = 0;
    for (const LogLine& line : log_lines(first_line_))
      if (line.message.find(words) != std::string::npos) ++count;
    return count;
  }
  int64_t runs() const { return gpu_emulation::calls("cudnnBackendExecute") - runs_before_; }

 private:
  int64_t plans_before_ = 0, runs_before_ = 0;
  uint64_t first_line_ = 0;
};

// The tensors of one call on a device, with the same numbers on every device.
struct Call {
  Call(Bench& bench, DType dtype, int64_t rows) {
    q = random_tensor(bench, dtype, {1, rows, 2, 16}, 1);
    k = random_tensor(bench, dtype, {1, rows, 1, 16}, 2);
    v = random_tensor(bench, dtype, {1, rows, 1, 16}, 3);
    dout = random_tensor(bench, dtype, {1, rows, 2, 16}, 4);
    out = bench.empty(dtype, {1, rows, 2, 16});
    lse = bench.empty(DType::f32, {1, 2, rows});
    dq = bench.empty(dtype, q.shape());
    dk = bench.empty(dtype, k.shape());
    dv = bench.empty(dtype, v.shape());
    if (const size_t bytes = bench.ops->attention_workspace_bytes(backward()); bytes > 0)
      workspace = bench.empty(DType::u8, {static_cast<int64_t>(bytes)});
  }
  AttentionArgs args() const { return {q, k, v, out, lse, 0.25, true, 0, 0}; }
  AttentionBackwardArgs backward() const {
    AttentionBackwardArgs args = {q, k, v, out, lse, dout, dq, dk, dv, 0.25, true, 0, 0, false};
    args.workspace = workspace;
    return args;
  }
  Tensor q, k, v, out, lse, dout, dq, dk, dv, workspace;
};

std::string paths(Bench& bench) { return describe_paths(*bench.ops); }
bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST_F(CudnnPath, BothDirectionsEqualTheCpus) {
  Bench bench;
  setenv("GANGWAY_TEST_DEVICE", "cpu", 1);
  Bench cpu;
  setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Call got(bench, dtype, 128), want(cpu, dtype, 128);
    for (const auto& [on, call] : {std::pair(&bench, &got), std::pair(&cpu, &want)}) {
      on->ops->attention(call->args(), on->stream());
      on->ops->attention_backward(call->backward(), on->stream());
    }
    const double tolerance = 5 * rounding_of(dtype);
    expect_close(got.out, values(want.out), tolerance_of(dtype), "out");
    expect_close(got.lse, values(want.lse), 2e-5, "lse");
    expect_close(values(got.dq), values(want.dq), tolerance, "dq", 0.2);
    expect_close(values(got.dk), values(want.dk), tolerance, "dk", 0.2);
    expect_close(values(got.dv), values(want.dv), tolerance, "dv", 0.2);
  }
  EXPECT_EQ(plans(), 4);
  EXPECT_EQ(runs(), 4);
}

TEST_F(CudnnPath, APlanIsMadeOnceForAShape) {
  Bench bench;
  const Call call(bench, DType::bf16, 128), other(bench, DType::bf16, 64), again(bench, DType::bf16, 128);
  for (int i = 0; i < 3; ++i)
    for (const Call* each : {&call, &other, &again}) bench.ops->attention(each->args(), bench.stream());
  bench.stream().synchronize();
  EXPECT_EQ(plans(), 2);
  EXPECT_EQ(runs(), 9);
}

TEST_F(CudnnPath, OtherCallsGoToTheOwnKernels) {
  Bench bench;
  const Call wide(bench, DType::f32, 8), part(bench, DType::bf16, 64);
  bench.ops->attention(wide.args(), bench.stream());
  AttentionArgs later = part.args();
  later.q_offset = 1;
  bench.ops->attention(later, bench.stream());
  bench.ops->attention_backward(part.backward(), bench.stream());  // 64 keys do not fill a tile
  bench.stream().synchronize();
  EXPECT_EQ(runs(), 0);
}

TEST_F(CudnnPath, ThePathsAreDescribedWithTheirRules) {
  Bench bench;
  const Call call(bench, DType::bf16, 128);
  bench.ops->attention(call.args(), bench.stream());
  bench.ops->attention_backward(call.backward(), bench.stream());
  bench.stream().synchronize();
  const std::string all = paths(bench);
  EXPECT_EQ(lines("device cuda:0: attention by cuDNN (software GPU), by own kernels where it takes no call"),
            1);
  EXPECT_TRUE(has(all, "attention: cuDNN (software GPU); own kernels where\n")) << all;
  EXPECT_TRUE(has(all, "  - the width of a head is no multiple of 8\n")) << all;
  EXPECT_TRUE(has(all,
                  "  attention bf16 128 queries, 128 keys, batch 1, heads 2/1 of width 16, causal: cuDNN, "
                  "0 bytes of workspace\n"))
      << all;
  EXPECT_TRUE(has(all, "causal: cuDNN, 65536 bytes of workspace\n")) << all;
}

// If cuDNN has no plan for a shape, the own kernels compute it from then on, and the description has the
// reason.
TEST_F(CudnnPath, AShapeThatCudnnRefusesIsNotAskedAgain) {
  Bench bench;
  const Call call(bench, DType::bf16, 16);
  gpu_emulation::fail_call("cudnnBackendFinalize", 1, cudaErrorUnknown);
  for (int i = 0; i < 2; ++i) bench.ops->attention(call.args(), bench.stream());
  bench.stream().synchronize();
  EXPECT_EQ(plans(), 1);
  EXPECT_EQ(runs(), 0);
  EXPECT_TRUE(has(paths(bench), ": own kernels: cuDNN: attention bf16 16 queries")) << paths(bench);
}

TEST_F(CudnnPath, APlanWithTooMuchWorkspaceIsNotUsed) {
  Bench bench;
  const Call call(bench, DType::bf16, 16);
  gpu_emulation::fail_call("cudnn workspace", 1, cudaErrorUnknown);
  for (int i = 0; i < 2; ++i) bench.ops->attention(call.args(), bench.stream());
  bench.stream().synchronize();
  EXPECT_EQ(plans(), 1);
  EXPECT_EQ(runs(), 0);
  EXPECT_TRUE(has(paths(bench),
                  ": own kernels: cuDNN needs 1099511627776 bytes of workspace, and the call has 33554432\n"))
      << paths(bench);
  EXPECT_EQ(
      lines("device cuda:0: own kernels compute attention bf16 16 queries, 16 keys, batch 1, heads 2/1 "
            "of width 16, causal: cuDNN needs 1099511627776 bytes of workspace, and the call has 33554432"),
      1);
}

TEST_F(CudnnPath, WithoutALibraryTheOwnKernelsComputeAndTheReasonIsReported) {
  Bench bench;
  gpu_emulation::fail_call("cudnnCreate", 1, cudaErrorUnknown);
  const Call call(bench, DType::bf16, 16);
  for (int i = 0; i < 2; ++i) bench.ops->attention(call.args(), bench.stream());
  bench.stream().synchronize();
  EXPECT_EQ(plans() + runs(), 0);
  EXPECT_TRUE(has(paths(bench), "attention: own kernels; no cuDNN: cuDNN (software GPU): an error"))
      << paths(bench);
  EXPECT_EQ(lines("device cuda:0: attention by own kernels: cuDNN (software GPU): an error"), 1);
  EXPECT_FALSE(Call(bench, DType::bf16, 128).workspace) << "a backward takes memory for nothing";
}

TEST_F(CudnnPath, ARunThatFailsIsAnErrorWithTheCall) {
  Bench bench;
  const Call call(bench, DType::bf16, 16);
  gpu_emulation::fail_call("cudnnBackendExecute", 1, cudaErrorUnknown);
  const Error error = test::error_of([&] {
    bench.ops->attention(call.args(), bench.stream());
    bench.stream().submit();  // starts the queued operations at the latest
  });
  EXPECT_EQ(error.code(), Code::internal);
  EXPECT_TRUE(has(error.message(), "cuDNN: attention bf16 16 queries, 16 keys")) << error.message();
}

// A workspace that is too small for the plan leaves the call to the own kernels.
TEST_F(CudnnPath, ABackwardRunsInTheWorkspaceOfItsCall) {
  Bench bench;
  const Call call(bench, DType::bf16, 256);
  AttentionBackwardArgs small = call.backward();
  small.workspace = bench.empty(DType::u8, {1 << 16});
  bench.ops->attention(call.args(), bench.stream());
  bench.ops->attention_backward(small, bench.stream());
  bench.stream().synchronize();
  EXPECT_EQ(runs(), 1);
  EXPECT_TRUE(has(paths(bench), "own kernels: cuDNN needs 262144 bytes of workspace, and the call has 65"))
      << paths(bench);
  for (const auto& [args, expected] : {std::pair(call.backward(), 2), std::pair(small, 2)}) {
    bench.ops->attention_backward(args, bench.stream());
    bench.stream().synchronize();
    EXPECT_EQ(runs(), expected) << "each call is judged by its own workspace";
  }
  Bench other;
  const Call again(other, DType::bf16, 256);
  other.ops->attention(again.args(), other.stream());
  other.ops->attention_backward(again.backward(), other.stream());
  other.stream().synchronize();
  EXPECT_EQ(runs(), 4);
}

TEST_F(CudnnPath, WhileTheCallerCapturesCudnnIsNotOpenedAndMakesNoPlan) {
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking, 0), cudaSuccess);
  for (const bool is_open : {false, true}) {
    Bench bench;
    Stream& stream = bench.device->wrap_stream(native);
    const Call own(bench, DType::f32, 8), call(bench, DType::bf16, 16);
    const Tensor q = bench.empty(DType::bf16, {1, 128, 2, 16}), lse = bench.empty(DType::f32, {1, 2, 128});
    const AttentionBackwardArgs backward = {q, q, q, q, lse, q, q, q, q, 0.25, true, 0, 0, false};
    if (is_open) {
      EXPECT_GT(bench.ops->attention_workspace_bytes(backward), 0u);
    }
    bench.ops->attention(own.args(), stream);
    stream.synchronize();
    const int64_t opened = gpu_emulation::calls("cudnnCreate"), planned = plans(), ran = runs();
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(bench.ops->attention_workspace_bytes(backward) > 0, is_open);
    bench.ops->attention(call.args(), stream);
    stream.submit();
    ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess) << gpu_emulation::report();
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(gpu_emulation::calls("cudnnCreate"), opened);
    EXPECT_EQ(plans(), planned);
    EXPECT_EQ(runs(), ran);
    bench.ops->attention(call.args(), stream);
    stream.synchronize();
    EXPECT_EQ(runs(), ran + 1);
  }
  ASSERT_EQ(cudaStreamDestroy(native), cudaSuccess);
}

TEST_F(CudnnPath, APlanOfMemoryCountsTheWorkspaceOfARun) {
  Bench bench;
  setenv("GANGWAY_TEST_DEVICE", "meta:cuda", 1);
  Bench plan;
  setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  const auto bytes = [](Bench& bench, DType dtype, int64_t rows) {
    const Tensor q = bench.empty(dtype, {1, rows, 2, 16}), lse = bench.empty(DType::f32, {1, 2, rows});
    return bench.ops->attention_workspace_bytes({q, q, q, q, lse, q, q, q, q, 0.25, true, 0, 0, false});
  };
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const int64_t rows : {0, 1, 64, 128, 384}) {
      EXPECT_EQ(bytes(bench, dtype, rows), bytes(plan, dtype, rows)) << rows;
      EXPECT_EQ(bytes(bench, dtype, rows) > 0, dtype != DType::f32 && rows > 0 && rows % 128 == 0) << rows;
    }
}

}  // namespace
}  // namespace gangway
