// The averages of a model's parameters over ranks.
#include "train/rig.h"

namespace gangway {
namespace {

test::Rig ema_rig(Gang& root, double decay) {
  test::Rig rig = test::llama_rig(root);
  OptimizerOptions options;
  options.lr = 0.01;
  options.ema_decay = decay;
  rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), options, rig.model->ops());
  return rig;
}

Batch batch_of(const test::Rig& rig, Gang& root, int64_t step) {
  const int64_t rows = 6 / root.size();
  return test::pattern_batch(*rig.model, rows, 6, 5 * step + root.rank() * rows * 3);
}

TEST(Ema, OverRanksEqualsOneRankAndSwapsBackToTheSameBits) {
  const auto averaged = [](Gang& root) {
    const test::Rig rig = ema_rig(root, 0.5);
    for (int64_t step = 0; step < 3; ++step) rig.step(batch_of(rig, root, step));
    const std::vector<double> values = rig.parameters();
    swap_ema(*rig.model, *rig.optimizer, rig.stream());
    const std::vector<double> averages = rig.parameters();
    EXPECT_NE(averages, values);
    const Error error = test::error_of([&] { rig.step(batch_of(rig, root, 3)); });
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_EQ(error.message(),
              "train: the parameters hold their averages; swap_ema swaps them back for a step");
    eval_step(*rig.model, batch_of(rig, root, 3), {}, rig.stream());
    swap_ema(*rig.model, *rig.optimizer, rig.stream());
    EXPECT_EQ(rig.parameters(), values);
    rig.step(batch_of(rig, root, 3));
    return averages;
  };
  std::vector<double> alone;
  test::run_ranks(1, [&](Gang& root) { alone = averaged(root); });
  for (const int ranks : {2, 3})
    test::run_ranks(ranks, [&](Gang& root) {
      const std::vector<double> got = averaged(root);
      ASSERT_EQ(got.size(), alone.size());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], alone[i], 1e-12) << ranks;
    });
}

TEST(Ema, ASwapWithoutAveragesIsRefusedOnAllRanks) {
  test::run_ranks(2, [](Gang& root) {
    const test::Rig none = ema_rig(root, 0), fresh = ema_rig(root, 0.5);
    const auto message = [](const test::Rig& rig) {
      return test::error_of([&] { swap_ema(*rig.model, *rig.optimizer, rig.stream()); }).message();
    };
    EXPECT_NE(message(none).find("ema_decay is 0"), std::string::npos);
    EXPECT_NE(message(fresh).find("no averages before the first step"), std::string::npos);
    fresh.step(batch_of(fresh, root, 0));  // the gangs stay usable
  });
}

}  // namespace
}  // namespace gangway
