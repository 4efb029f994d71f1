// Training with and without CUDA graphs gives the same bits. Tests also count the host's calls for a block.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/error_of.h"
#include "gpu_emulation/emulator.h"
#include "support/placed.h"
#include "train/manual.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using gpu_emulation::calls;

DecoderOptions tiny(int64_t layers) {
  DecoderOptions options;
  options.vocab = 16;
  options.dim = 8;
  options.layers = layers;
  options.heads = 2;
  options.kv_heads = 1;
  options.ffn = 16;
  return options;
}

// The calls by which the host starts work: kernels, products, graphs, memsets.
int64_t launches() {
  int64_t sum = 0;
  for (const char* const name : {"cudaLaunchKernel", "cublasLtMatmul", "cudaGraphLaunch", "cudaMemsetAsync"})
    sum += calls(name);
  return sum;
}

Tensor tokens(Model& model, int64_t rows, int64_t first) {
  std::vector<int64_t> ids(static_cast<size_t>(rows) * 4);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = (first + 5 * static_cast<int64_t>(i)) % 16;
  return test::tensor_of(model, DType::i64, Shape{rows, 4}, ids.data());
}

struct Rig {
  Rig(Gang& root, int64_t layers, Strategy strategy = Strategy::full_shard, DType param = DType{}) {
    ParallelOptions options = test::parallel(strategy, DType::f32);
    options.shard.param_dtype = param;
    model = test::make_model(make_decoder(tiny(layers)), test::make_gangs(root), options);
    optimizer = make_optimizer("adamw", model->inspect().parameters(), OptimizerOptions(), model->ops());
  }
  StepResult step(int64_t rows, int64_t first = 0, int microbatches = 1) {
    Batch batch;
    batch.inputs = {tokens(*model, rows, first)};
    batch.targets = {tokens(*model, rows, first + 5)};  // the next tokens
    StepOptions options;
    options.max_grad_norm = 1;
    options.microbatches = microbatches;
    return train_step(*model, optimizer.get(), batch, options, model->device().stream());
  }

  std::shared_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
};

class CudaGraphsTraining : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  }
  void TearDown() override {
    unsetenv("GANGWAY_CUDA_GRAPHS");
    EXPECT_EQ(gpu_emulation::living(), 0);
    gpu_emulation::reset();
  }
  static void turn(bool graphs) { setenv("GANGWAY_CUDA_GRAPHS", graphs ? "1" : "0", 1); }
};

struct Case {
  int ranks;
  Strategy strategy;
  DType param;
  int microbatches;
};

// Returns the losses and norms of some steps, some of them with other shapes, and all parameters after them.
std::vector<double> trained(const Case& c) {
  std::vector<double> numbers;
  test::run_ranks(c.ranks, [&](Gang& root) {
    Rig rig(root, 2, c.strategy, c.param);
    std::vector<double> mine;
    for (const int64_t rows : {4, 4, 2, 4, 2, 4}) {
      const StepResult result = rig.step(rows, rows + root.rank(), c.microbatches);
      mine.insert(mine.end(), {result.loss, result.grad_norm});
    }
    for (const NamedParameter& named : rig.model->inspect().parameters()) {
      const std::vector<double> values = test::gathered(*rig.model, *named.parameter);
      mine.insert(mine.end(), values.begin(), values.end());
    }
    if (root.rank() == 0) numbers = mine;
  });
  return numbers;
}

TEST_F(CudaGraphsTraining, TheBitsAreThoseOfSingleLaunchesAlsoWhereShapesChange) {
  for (const Case& c :
       {Case{1, Strategy::full_shard, DType{}, 1}, Case{1, Strategy::full_shard, DType::bf16, 2},
        Case{2, Strategy::full_shard, DType{}, 1}, Case{2, Strategy::no_shard, DType{}, 2}}) {
    const int64_t before = calls("cudaGraphLaunch");
    turn(false);
    const std::vector<double> plain = trained(c);
    EXPECT_EQ(calls("cudaGraphLaunch"), before);
    turn(true);
    EXPECT_EQ(trained(c), plain) << c.ranks << " ranks, " << c.microbatches << " microbatches";
    EXPECT_GT(calls("cudaGraphLaunch"), before);
  }
}

// Work that is new in each step still runs one by one: the optimizer, whose numbers change, and what uses the
// batch, whose addresses change. Only the batch allocates memory: queued operations do not hold the buffers
// that are used in turn.
TEST_F(CudaGraphsTraining, TheThirdStepStartsFarLessThanTheFirst) {
  turn(true);
  std::printf("launches of the host in a step of 10 blocks, all ranks\n");
  for (const int ranks : {1, 2})
    test::run_ranks(ranks, [&](Gang& root) {
      Rig rig(root, 10);
      constexpr size_t kSteps = 6;
      int64_t starts[kSteps], blocks[kSteps];
      const auto count = [&](size_t step, int64_t sign) {
        root.barrier(Channel::user);
        starts[step] += sign * launches();
        blocks[step] += sign * calls("cudaMallocAsync");
        root.barrier(Channel::user);
      };
      for (size_t step = 0; step < kSteps; ++step) {
        starts[step] = blocks[step] = 0;
        count(step, -1);
        rig.step(2);
        count(step, 1);
      }
      if (root.rank() != 0) return;
      EXPECT_LT(starts[2], starts[0] / 2);
      EXPECT_LT(starts[3], starts[0] * 2 / 5);
      EXPECT_LT(starts[5], starts[0] * 2 / 5);
      EXPECT_EQ(blocks[5], 2 * ranks) << "ids and labels";
      std::printf("%d ranks:", ranks);
      for (const int64_t of_step : starts) std::printf(" %d", static_cast<int>(of_step));
      std::printf("\n");
    });
}

struct Launches {
  int64_t forward, backward;
};
// Counts the calls of the fourth forward and backward, of all ranks together.
Launches counted(int ranks, int64_t layers) {
  std::atomic<int64_t> points[3];
  test::run_ranks(ranks, [&](Gang& root) {
    const Rig rig(root, layers);
    Stream& stream = rig.model->device().stream();
    ManualFrame frame(rig.model, {});
    const std::vector<Tensor> inputs = {tokens(*rig.model, 2, 0), tokens(*rig.model, 2, 1)};
    const auto at = [&](int64_t time, int point) {
      stream.synchronize();
      root.barrier(Channel::user);
      if (time == 3 && root.rank() == 0) points[point] = launches();
      root.barrier(Channel::user);
    };
    for (int64_t time = 0; time < 4; ++time) {
      at(time, 0);
      manual_forward(*rig.model, inputs, &frame, stream);
      at(time, 1);
      manual_backward(frame, {}, stream);
      at(time, 2);
    }
  });
  return {points[1] - points[0], points[2] - points[1]};
}

TEST_F(CudaGraphsTraining, ABlockIsFewLaunches) {
  std::printf("launches of the host for a block and a rank (f32, full_shard, gradients accumulate)\n");
  std::printf("%-8s %-10s %10s %10s\n", "ranks", "graphs", "forward", "backward");
  for (const int ranks : {1, 2}) {
    double sums[2] = {};
    for (const bool graphs : {false, true}) {
      turn(graphs);
      const Launches few = counted(ranks, 2), many = counted(ranks, 10);
      const double forward = static_cast<double>(many.forward - few.forward) / 8 / ranks,
                   backward = static_cast<double>(many.backward - few.backward) / 8 / ranks;
      std::printf("%-8d %-10s %10.2f %10.2f\n", ranks, graphs ? "on" : "off", forward, backward);
      sums[graphs ? 1 : 0] = forward + backward;
    }
    EXPECT_LT(sums[1], sums[0] / (ranks == 1 ? 10 : 4)) << ranks << " ranks";
  }
}

// A call fails while graphs are captured and launched.
TEST_F(CudaGraphsTraining, ACallThatFailsAmongGraphsIsReportedToBothRanksAndLeavesNothing) {
  turn(true);
  std::atomic<int64_t> first = 0, last = 0;
  const auto body = [&](Gang& root, int64_t nth) {
    Rig rig(root, 1);
    rig.step(2);
    root.barrier(Channel::user);
    if (root.rank() == 0) {
      first = calls("*");
      if (nth > 0) gpu_emulation::fail_call("*", static_cast<int>(nth), cudaErrorUnknown);
    }
    root.barrier(Channel::user);
    rig.step(2);
    rig.step(2);
    root.barrier(Channel::user);
    if (root.rank() == 0) last = calls("*");
    root.barrier(Channel::user);
  };
  test::run_ranks(2, [&](Gang& root) { body(root, 0); });
  const auto all = static_cast<int>(last - first);
  std::mt19937 engine(11);
  std::uniform_int_distribution<int> some(1, all);
  int heard = 0;
  const int rounds = std::getenv("GANGWAY_TEST_ALL") != nullptr ? 300 : 30;
  for (int i = 0; i < rounds; ++i) {
    const int nth = some(engine);
    std::atomic<int> told = 0;
    try {
      test::run_ranks(2, [&](Gang& root) {
        try {
          body(root, nth);
        } catch (const Error& error) {
          EXPECT_FALSE(error.message().empty());
          root.abort(error);
          ++told;
        }
      });
    } catch (const Error&) {
      told = 2;
    }
    gpu_emulation::reset();
    EXPECT_NE(told, 1) << "call " << nth << " of " << all << " is told to one rank alone";
    ASSERT_EQ(gpu_emulation::living(), 0) << "call " << nth << " of " << all;
    heard += told == 2 ? 1 : 0;
  }
  EXPECT_GT(heard, rounds / 6);  // failures of calls that free or query are not reported
}

}  // namespace
}  // namespace gangway
