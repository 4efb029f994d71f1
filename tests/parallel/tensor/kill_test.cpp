// Kills one of several ranks that share layers, or lets it compute something else, and checks the errors of
// the others.
#include <cstring>

#include "gang/host/joined.h"
#include "gang/host/mix.h"
#include "parallel/tensor/styled_trees.h"

namespace gangway::test {
namespace {

void train(const StyledTree& tree, int rank, int size, const std::shared_ptr<Store>& store, Report& report) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = size;
  options.store = store;
  const GangPtr root = Gang::create(options);
  const auto model = styled_model(*root, tree, size);
  until_failure(report, [&] {
    run(*model, tree);
    ++report.stage;
  });
  report.gang_code = root->error() ? static_cast<int64_t>(root->error()->code()) : 0;
}

TEST(TensorKill, SixtyKillsAtRandomPointsAreNamedByEverySurvivor) {
  const std::vector<StyledTree> trees = styled_trees();
  for (uint64_t round = 0; round < 60; ++round) {
    const StyledTree& tree = trees[round % trees.size()];
    const int size = round % 2 == 0 ? 2 : 4;
    const int victim = static_cast<int>(drawn(round, 1) % static_cast<uint64_t>(size));
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      train(tree, r, size, store, report);
    });
    ranks.wait_for_stage(victim, 1 + static_cast<int>(drawn(round, 2) % 5));
    usleep(static_cast<useconds_t>(drawn(round, 3) % 2000));
    ranks.kill(victim, SIGKILL);
    ranks.join();
    for (int r = 0; r < size; ++r) {
      if (r == victim) continue;
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r)) << tree.name << " rank " << r << ": " << report.text;
      ASSERT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
      ASSERT_EQ(report.peer, victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", victim, " (host ").c_str()), nullptr) << report.text;
    }
  }
}

}  // namespace
}  // namespace gangway::test
