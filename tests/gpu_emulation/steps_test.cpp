// The losses of many steps on the module for CUDA are close to the CPU's, and have the same bits for every
// order of the GPU.
#include <cmath>
#include <cstdlib>

#include "gpu_emulation/emulator.h"
#include "support/placed.h"
#include "train/rig.h"

namespace gangway {
namespace {

class CudaSteps : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
  }
  void TearDown() override { EXPECT_EQ(gpu_emulation::report(), ""); }

  // The values of rank 0, followed by its parameters.
  static std::vector<double> losses(const char* device, int ranks, int steps,
                                    Strategy strategy = Strategy::full_shard) {
    std::vector<double> out;
    GangOptions gang = test::thread_rank_options();
    gang.device = device;
    test::run_ranks(
        ranks,
        [&](Gang& root) {
          test::Rig rig;
          rig.model = test::make_model(make_decoder(test::small_llama()), test::make_gangs(root),
                                       test::parallel(strategy, DType::f32));
          // With a larger rate every rounding difference grows. Then the CPU's instruction sets differ as
          // much.
          OptimizerOptions adamw;
          adamw.lr = 0.003;
          rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), adamw, rig.model->ops());
          std::vector<double> own;
          StepOptions options;
          options.max_grad_norm = 1;
          for (int i = 0; i < steps; ++i)
            own.push_back(rig.step(test::pattern_batch(*rig.model, 2, 12, root.rank() + i), options).loss);
          for (const double x : rig.parameters()) own.push_back(x);
          if (root.rank() == 0) out = own;
        },
        gang);
    return out;
  }
};

TEST_F(CudaSteps, FiftyInF32StayWithinAThousandthOfTheCpus) {
  constexpr size_t kSteps = 50;
  const std::vector<double> cpu = losses("cpu", 2, kSteps), gpu = losses("cuda", 2, kSteps);
  ASSERT_EQ(cpu.size(), gpu.size());
  EXPECT_LT(cpu[kSteps - 1], cpu[0] - 0.15) << "it learns";
  double worst = 0;
  for (size_t i = 0; i < kSteps; ++i) worst = std::max(worst, std::abs(gpu[i] / cpu[i] - 1));
  EXPECT_LT(worst, 1e-3);
  std::printf("loss %.4f to %.4f, at most %.1e from the CPU's\n", cpu[0], cpu[kSteps - 1], worst);
}

TEST_F(CudaSteps, HaveTheSameBitsForEverySeedOfTheScheduler) {
  const gpu_emulation::Settings before = gpu_emulation::settings();
  std::vector<double> first;
  for (const uint32_t seed : {0u, 2u, 3u, 11u, 12u}) {
    gpu_emulation::Settings settings = before;
    settings.seed = seed;
    gpu_emulation::set(settings);
    const std::vector<double> own = losses("cuda", 2, 3);
    if (first.empty()) first = own;
    EXPECT_EQ(own, first) << "seed " << seed;
  }
  gpu_emulation::set(before);
}

TEST_F(CudaSteps, ShardedOverOneRankHaveTheBitsOfNoSharding) {
  EXPECT_EQ(losses("cuda", 1, 3), losses("cuda", 1, 3, Strategy::no_shard));
}

}  // namespace
}  // namespace gangway
