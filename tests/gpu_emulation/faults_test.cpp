// If any call of CUDA, cuBLASLt or NCCL fails in a training step over two ranks, both ranks get an error,
// nothing waits forever, and nothing leaks. The test draws some calls at random. With GANGWAY_TEST_FAULTS=K/N
// it takes every N-th call from the K-th on; all N parts together cover every call, and take longer than
// ctest waits. Most of the time goes into the waits for a lost peer.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>

#include "train/train_testing.h"

#include "gpu_emulation/emulator.h"
#include "support/placed.h"

namespace gangway {
namespace {

DecoderOptions tiny() {
  DecoderOptions options;
  options.vocab = 16;
  options.dim = 8;
  options.layers = 1;
  options.heads = 2;
  options.kv_heads = 1;
  options.ffn = 16;
  return options;
}

// Calls `last` before it destroys the objects.
void step_and(Gang& root, const std::function<void()>& last) {
  const auto model = test::make_model(make_decoder(tiny()), test::make_gangs(root),
                                      test::parallel(Strategy::full_shard, DType::f32));
  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), OptimizerOptions(), model->ops());
  const std::vector<int64_t> ids{1, 2, 3, 4, 5};
  Batch batch;
  batch.inputs = {test::tensor_of(*model, DType::i64, Shape{1, 4}, ids.data())};
  batch.targets = {test::tensor_of(*model, DType::i64, Shape{1, 4}, ids.data() + 1)};
  const StepResult result = train_step(*model, optimizer.get(), batch, {}, model->device().stream());
  EXPECT_TRUE(std::isfinite(result.loss));
  last();
}
void step(Gang& root) {
  step_and(root, [] {});
}

// Returns how many ranks got an error when the nth call of `name` failed, or 2 if the gang was not made. It
// returns nothing if there were fewer calls; their number depends on how long the host waits.
std::optional<int> told(const char* name, int nth) {
  std::atomic<int> count = 0;
  const int64_t before = gpu_emulation::calls(name);
  gpu_emulation::fail_call(name, nth, cudaErrorUnknown);
  try {
    test::run_ranks(2, [&](Gang& root) {
      try {
        step(root);
        root.barrier(Channel::user);  // reports failures after the last exchange of a step
      } catch (const Error& error) {
        EXPECT_FALSE(error.message().empty());
        root.abort(error);
        ++count;
      }
    });
  } catch (const Error&) {
    count = 2;
  }
  const bool failed = gpu_emulation::calls(name) - before >= nth;
  gpu_emulation::reset();
  return failed ? std::optional<int>(count) : std::nullopt;
}

class CudaFaults : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  }
  // The number of calls in a step of two ranks.
  static int calls_of(const char* name) {
    const int64_t before = gpu_emulation::calls(name);
    test::run_ranks(2, step);
    return static_cast<int>(gpu_emulation::calls(name) - before);
  }
};

TEST_F(CudaFaults, ACallThatFailsInAStepOfTwoRanksIsReportedToBothAndLeavesNothing) {
  const int all = calls_of("*");
  ASSERT_EQ(gpu_emulation::living(), 0);
  std::vector<int> chosen;
  int first = 0, step_size = 0;
  if (const char* const part = std::getenv("GANGWAY_TEST_FAULTS")) {
    ASSERT_EQ(std::sscanf(part, "%d/%d", &first, &step_size), 2) << "GANGWAY_TEST_FAULTS is K/N";
    for (int nth = first; nth <= all; nth += step_size) chosen.push_back(nth);
  } else {
    std::mt19937 engine(7);
    std::uniform_int_distribution<int> some(1, all);
    for (int i = 0; i < 40; ++i) chosen.push_back(some(engine));
  }
  int heard = 0, failed = 0;
  for (const int nth : chosen) {
    const std::optional<int> count = told("*", nth);
    EXPECT_NE(count, 1) << "call " << nth << " of " << all << " is told to one rank alone";
    ASSERT_EQ(gpu_emulation::living(), 0) << "call " << nth << " of " << all;
    failed += count ? 1 : 0;
    heard += count == 2 ? 1 : 0;
  }
  EXPECT_GT(heard, failed / 3);  // failures of calls that free or query are not reported
  EXPECT_GT(failed, static_cast<int>(chosen.size()) / 2);
  std::printf("%d of about %d calls failed once, %d were told\n", failed, all, heard);
}

// A destructor cannot report an error and must not throw it.
TEST_F(CudaFaults, ADeviceThatCannotBeChosenAtTheEndEndsNoProcess) {
  int failed = 0;
  for (int nth = 1; nth <= 20; ++nth) {
    int64_t before = 0;
    try {
      test::run_ranks(2, [&](Gang& root) {
        step_and(root, [&] {
          root.barrier(Channel::user);
          if (root.rank() != 0) return;
          before = gpu_emulation::calls("cudaSetDevice");
          gpu_emulation::fail_call("cudaSetDevice", nth, cudaErrorUnknown);
        });
      });
    } catch (const Error&) {  // rank 1 may be in the barrier still, and gets an error
    }
    failed += gpu_emulation::calls("cudaSetDevice") - before >= nth ? 1 : 0;
    gpu_emulation::reset();
    EXPECT_EQ(gpu_emulation::living(), 0) << nth;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace gangway
