// Training on the module for CUDA over the software GPU: five steps equal the reference files. It is a part
// of train_parity_test.cuda that is small enough for every run.
#include <cstdlib>

#include "nn/fp8.h"
#include "train/five_steps.h"

#include "gpu_emulation/emulator.h"
#include "support/placed.h"

namespace gangway {
namespace {

using test::FiveSteps;
using test::Reference;

class CudaTraining : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
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
  EXPECT_EQ(gpu_emulation::living(), 0);
}
TEST_F(CudaTraining, TwoReplicasEqualTheReference) {
  if (std::getenv("GANGWAY_TEST_ALL") == nullptr) GTEST_SKIP() << "15 s; with GANGWAY_TEST_ALL=1";
  expect(2, {1, Strategy::no_shard, 3}, DType::f64);
}

TEST_F(CudaTraining, Fp8ThatAGpuCannotMultiplyIsRefusedWhenTheModelIsMade) {
  const gpu_emulation::Settings before = gpu_emulation::settings();
  const auto make_on = [&](int architecture, Fp8Scaling scaling) {
    gpu_emulation::Settings settings = before;
    settings.architecture = architecture;
    gpu_emulation::set(settings);
    test::run_ranks(1, [&](Gang& root) {
      const ModulePtr linear = make_sequential({make_linear(16, 16, false, 0.1)});
      Fp8Options options;
      options.scaling = scaling;
      apply_fp8(linear, options);
      Model model(linear, create_gangs(root.shared_from_this(), {}));
      model.build().materialize(1, DType::f32);
    });
  };
  const auto refusal = [&](int architecture, Fp8Scaling scaling) {
    const Error error = test::error_of([&] { make_on(architecture, scaling); });
    EXPECT_EQ(error.code(), Code::not_supported);
    return error.message();
  };
  EXPECT_NE(refusal(86, Fp8Scaling::tensor).find("sm_89 or newer, and device cuda:0 is sm_86"),
            std::string::npos);
  EXPECT_NE(refusal(89, Fp8Scaling::row).find("sm_90, and device cuda:0 is sm_89"), std::string::npos);
  EXPECT_NE(refusal(100, Fp8Scaling::row).find("sm_90, and device cuda:0 is sm_100"), std::string::npos);
  make_on(100, Fp8Scaling::tensor);
  make_on(89, Fp8Scaling::delayed);
  make_on(90, Fp8Scaling::row);
  gpu_emulation::set(before);
}

// NCCL makes a communicator of all ranks, so a first send between two ranks would wait for the others.
TEST_F(CudaTraining, AFirstSendAmongMoreThanTwoRanksIsRefusedAndHarmless) {
  test::run_ranks(3, [](Gang& root) {
    Stream& stream = root.device().stream();
    const Tensor one = Tensor::allocate(root.device().allocator(), DType::f32, {1});
    Collective c;
    c.in = c.out = one.raw();
    c.count = 1;
    c.dtype = DType::f32;
    const auto pass = [&] {
      c.op = root.rank() == 0 ? CollectiveOp::send : CollectiveOp::recv;
      c.reduce = Reduce::none;
      c.peer = root.rank() == 0 ? 2 : 0;
      if (root.rank() != 1) root.run(Channel::user, c, &stream)->wait(Deadline::after_ms(20000));
    };
    if (root.rank() != 1) {
      const Error error = test::error_of(pass);
      EXPECT_EQ(error.code(), Code::invalid_state) << error.message();
      EXPECT_NE(error.message().find("before the first send"), std::string::npos) << error.message();
    }
    c.op = CollectiveOp::all_reduce;
    c.reduce = Reduce::sum;
    root.run(Channel::user, c, &stream)->wait(Deadline::after_ms(20000));
    pass();
  });
  EXPECT_EQ(gpu_emulation::living(), 0);
}

}  // namespace
}  // namespace gangway
