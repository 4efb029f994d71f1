// Replicas: buckets of every size, reduced as they fill, once.
#include "parallel/trial.h"

namespace gangway::test {
namespace {

ModulePtr chain() {
  return make_sequential(
      {make_linear(3, 40, true, 0.5), make_linear(40, 30, true, 0.5), make_linear(30, 2, true, 0.5)});
}
const Trial kChain{chain, Shape{4, 3}};

std::unique_ptr<Model> replicated(Gang& root, double cap_mb) {
  auto model = std::make_unique<Model>(chain(), mesh_of(root));
  ShardOptions options;
  options.bucket_cap_mb = cap_mb;
  model->replicate(options);
  model->materialize(kChain.seed, DType::f64);
  return model;
}

TEST(Replicate, BucketsOfEverySizeGiveTheGradientsOfOneDevice) {
  const auto want = kChain.alone(3, 2);
  std::map<std::string, Vector> first;
  for (const double cap : {25.0, 0.005, 0.0001})
    run_ranks(3, [&](Gang& root) {
      const auto model = replicated(root, cap);
      for (int m = 0; m < 2; ++m) {
        model->set_last_microbatch(m == 1);
        kChain.run(*model, m);
      }
      const auto got = kChain.gradients(*model);
      expect_near(got, want, 1e-12);
      root.barrier();
      if (root.rank() == 0 && first.empty()) first = got;
      root.barrier();
      EXPECT_EQ(got, first) << "sums of elements do not depend on their bucket, nor on the rank";
    });
}

TEST(Replicate, ReducesOnceAfterTheLastMicrobatchAsBucketsFill) {
  const auto calls = [](double cap, bool every) {
    uint64_t count = 0;
    run_ranks(2, [&](Gang& root) {
      const auto model = replicated(root, cap);
      const GangPtr& gang = model->gangs().losses();
      const uint64_t before = gang->traffic().calls;
      for (int m = 0; m < 3; ++m) {
        model->set_last_microbatch(every || m == 2);
        kChain.run(*model, m);
      }
      const uint64_t in_backward = gang->traffic().calls - before;
      model->finish_gradients(model->device().stream());
      EXPECT_EQ(gang->traffic().calls - before, in_backward) << "all were started in backward";
      if (root.rank() == 0) count = in_backward;
    });
    return count;
  };
  EXPECT_EQ(calls(25, false), 1u);
  EXPECT_EQ(calls(0.0001, false), 6u);
  EXPECT_EQ(calls(25, true), 3u);
}

}  // namespace
}  // namespace gangway::test
