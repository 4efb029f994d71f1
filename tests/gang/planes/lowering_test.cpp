// What an engine does not take is made of what it takes: the matrix against the serial fold, for every subset of
// records that the engine below declares.
#include "gang/gang_matrix.h"
#include "gang/planes/fewer_facts.h"
#include "gang/planes/over_engines.h"
#include "gang/registry.h"
#include "gang/works_in_flight.h"

namespace gangway::test {
namespace {

class Lowering : public testing::TestWithParam<int> {};

TEST_P(Lowering, EverySubsetOfNativeRecordsGivesTheSerialFold) {
  const EngineFacts facts = facts_of(GetParam());
  for (const int ranks : {1, 3})
    run_over_engines(
        ranks,
        [&](const std::shared_ptr<Rank>& rank, std::shared_ptr<Engine> below) {
          return lowered(std::make_shared<FewerFacts>(std::move(below), facts), rank);
        },
        small_matrix);
}

INSTANTIATE_TEST_SUITE_P(Subsets, Lowering, testing::Range(0, kSubsets));

TEST(Lowering, WorksThatShareMemoryRunInTheOrderOfTheCalls) {
  for (const int subset : {0, 30})  // nothing as it is, and all but counts
    run_over_engines(
        3,
        [&](const std::shared_ptr<Rank>& rank, std::shared_ptr<Engine> below) {
          return lowered(std::make_shared<FewerFacts>(std::move(below), facts_of(subset)), rank);
        },
        [](Gang& root) { dependent_works(root); });
}

TEST(Lowering, AnEngineThatTakesEverythingIsLeftAlone) {
  const auto rank = std::make_shared<Rank>(make_device("cpu"));
  const std::shared_ptr<Engine> all = make_thread_engines({rank}, EngineOptions{})[0];
  EXPECT_EQ(lowered(all, rank), all);
}

TEST(Lowering, AsynchronousCallsEndWithoutTheirWorks) {
  run_over_engines(
      2,
      [](const std::shared_ptr<Rank>& rank, std::shared_ptr<Engine> below) {
        return lowered(std::make_shared<FewerFacts>(std::move(below), facts_of(0)), rank);
      },
      [](Gang& gang) {
        std::vector<float> x(1000, static_cast<float>(gang.rank() + 1)), sum(1000, 10);
        Collective c;
        c.op = CollectiveOp::all_reduce;
        c.in = x.data();
        c.out = sum.data();
        c.count = x.size();
        c.reduce = Reduce::mean;
        c.accumulate = true;
        gang.run(Channel::user, c);  // nobody holds it
        while (gang.owner()->works()->size() != 0) gang.owner()->works()->progress();
        for (const float y : sum) ASSERT_EQ(y, 11.5F);
        gang.barrier();
      });
}

}  // namespace
}  // namespace gangway::test
