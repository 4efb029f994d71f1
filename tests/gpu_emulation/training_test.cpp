// Training on the module for CUDA over the software GPU: five steps against the reference files. A part of what
// train_parity_test.cuda does, small enough for every run.
#include <cstdlib>

#include "train/five_steps.h"

#include "gpu_emulation/emulator.h"

namespace gangway {
namespace {

using test::FiveSteps;
using test::Reference;

class CudaTraining : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", GANGWAY_CUDA_FOLDER, 1);
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
  }
  void TearDown() override { EXPECT_EQ(gpu_emulation::report(), ""); }
  static void expect(int ranks, const FiveSteps& steps, DType dtype, const char* name = "llama_parity") {
    const Reference reference(name);
    test::run_ranks(ranks, [&](Gang& root) { test::expect_five_steps(root, reference, steps, dtype); });
  }
};

TEST_F(CudaTraining, OneRankEqualsTheReferenceInF64) {
  expect(1, {1, Strategy::full_shard, 1}, DType::f64);
  EXPECT_EQ(gpu_emulation::living(), 0);
}
TEST_F(CudaTraining, OneRankEqualsTheReferenceInF32) {
  if (std::getenv("GANGWAY_TEST_ALL") == nullptr) GTEST_SKIP() << "20 s; with GANGWAY_TEST_ALL=1";
  expect(1, {1, Strategy::full_shard, 3}, DType::f32);
}
TEST_F(CudaTraining, TwoShardedRanksEqualTheReference) {
  expect(2, {1, Strategy::full_shard, 1}, DType::f64);
}
TEST_F(CudaTraining, TwoReplicasEqualTheReference) {
  if (std::getenv("GANGWAY_TEST_ALL") == nullptr) GTEST_SKIP() << "15 s; with GANGWAY_TEST_ALL=1";
  expect(2, {1, Strategy::no_shard, 3}, DType::f64);
}

}  // namespace
}  // namespace gangway
