// Every optimizer of the table: sharded training equals training on one rank.
#include "train/rig.h"

namespace gangway {
namespace {

std::vector<double> trained(Gang& root, const OptimizerKind& kind, Strategy strategy) {
  test::Rig rig = test::llama_rig(root, strategy);
  OptimizerOptions options;
  options.lr = 0.01;
  options.weight_decay = 0.1;
  if (std::string(kind.name) == "sgd") options.hyperparameters = {{"momentum", 0.9}};
  rig.optimizer = make_optimizer(kind.name, rig.model->inspect().parameters(), options, rig.model->ops());
  for (int64_t step = 0; step < 4; ++step) {
    const int64_t rows = 12 / root.size();
    rig.step(test::pattern_batch(*rig.model, rows, 6, 5 * step + root.rank() * rows * 3));
  }
  return rig.parameters();
}

// pattern_batch continues its pattern by 3 a row, so that the rows of all ranks are those of one.
TEST(Optimizers, ShardedTrainingEqualsOneRankInF64) {
  for (const OptimizerKind* const kind : optimizer_kinds()) {
    std::vector<double> alone;
    test::run_ranks(1, [&](Gang& root) { alone = trained(root, *kind, Strategy::full_shard); });
    for (const int ranks : {2, 3, 4})
      for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
        test::run_ranks(ranks, [&](Gang& root) {
          const std::vector<double> got = trained(root, *kind, strategy);
          ASSERT_EQ(got.size(), alone.size());
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], alone[i], 1e-12) << kind->name << ", " << ranks << " ranks, element " << i;
        });
  }
}

}  // namespace
}  // namespace gangway
