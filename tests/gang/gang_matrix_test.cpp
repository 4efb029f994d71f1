// The matrix with ranks as threads, and of one rank alone.
#include "gang/gang_matrix.h"
#include "gang/thread_ranks.h"
#include "gang/works_in_flight.h"

namespace gangway::test {
namespace {

class GangMatrix : public testing::TestWithParam<int> {};

TEST_P(GangMatrix, EveryOperationEqualsTheSerialFold) {
  run_ranks(GetParam(), [](Gang& root) {
    EXPECT_STREQ(root.engine_name(), root.size() == 1 ? "self" : "threads");
    matrix(root);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GangMatrix, testing::Values(1, 2, 3, 4, 7, 8));

TEST(GangInFlight, WorksThatShareMemoryRunInTheOrderOfTheCalls) {
  for (const int ranks : {1, 2, 3}) run_ranks(ranks, [](Gang& root) { dependent_works(root); });
}

TEST(GangLarge, EveryPathIsRightOverSeveralChunks) { run_ranks(3, several_chunks); }

}  // namespace
}  // namespace gangway::test
