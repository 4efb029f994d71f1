// Whichever call of CUDA, cuBLASLt or NCCL fails in a training step over two ranks: both ranks hear of it, nothing waits for
// ever, and nothing is left. Some calls drawn at random; with GANGWAY_TEST_FAULTS=1 every one, which takes longer than ctest waits.
#include <atomic>
#include <cstdlib>
#include <random>

#include "train/train_testing.h"

#include "gpu_emulation/emulator.h"

namespace gangway {
namespace {

LlamaConfig tiny() {
  LlamaConfig options;
  options.vocab = 16;
  options.dim = 8;
  options.layers = 1;
  options.heads = 2;
  options.kv_heads = 1;
  options.ffn = 16;
  return options;
}

void step(Gang& root) {
  const auto model = test::make_model(make_llama(tiny()), test::make_gangs(root),
                                      test::parallel(Strategy::full_shard, DType::f32));
  const auto optimizer = make_adamw(model->inspect().parameters(), OptimizerOptions(), model->ops());
  const std::vector<int64_t> ids{1, 2, 3, 4};
  Batch batch;
  batch.inputs = {test::tensor_of(*model, DType::i64, Shape{1, 4}, ids.data())};
  batch.targets = {test::tensor_of(*model, DType::i64, Shape{1, 4}, ids.data())};
  batch.shifted = true;
  const StepResult result = train_step(*model, optimizer.get(), batch, {}, model->device().stream());
  EXPECT_TRUE(std::isfinite(result.loss));
}

// How many ranks were told of an error; 2 if the gang was not made.
int told(int nth) {
  std::atomic<int> count = 0;
  gpu_emulation::fail_call("*", nth, cudaErrorUnknown);
  try {
    test::run_ranks(2, [&](Gang& root) {
      try {
        step(root);
        root.barrier(Channel::user);  // tells of what failed behind the last exchange of a step
      } catch (const Error& error) {
        EXPECT_FALSE(error.message().empty());
        root.abort(error);
        ++count;
      }
    });
  } catch (const Error&) {
    count = 2;
  }
  gpu_emulation::reset();
  return count;
}

TEST(CudaFaults, ACallThatFailsInAStepOfTwoRanksIsToldToBothAndLeavesNothing) {
  setenv("GANGWAY_MODULES", GANGWAY_CUDA_FOLDER, 1);
  setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  const int64_t before = gpu_emulation::calls("*");
  test::run_ranks(2, step);
  ASSERT_EQ(gpu_emulation::living(), 0);
  const auto all = static_cast<int>(gpu_emulation::calls("*") - before);
  const bool every = std::getenv("GANGWAY_TEST_FAULTS") != nullptr;
  std::mt19937 engine(7);
  std::uniform_int_distribution<int> some(1, all);
  int heard = 0;
  const int rounds = every ? all : 40;
  for (int i = 1; i <= rounds; ++i) {
    const int nth = every ? i : some(engine);
    const int count = told(nth);
    EXPECT_NE(count, 1) << "call " << nth << " of " << all << " is told to one rank alone";
    ASSERT_EQ(gpu_emulation::living(), 0) << "call " << nth << " of " << all;
    heard += count == 2 ? 1 : 0;
  }
  EXPECT_GT(heard, rounds / 3);  // not the calls that give something back, or ask
}

}  // namespace
}  // namespace gangway
