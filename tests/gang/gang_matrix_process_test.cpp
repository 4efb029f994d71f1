// The matrix with ranks as processes.
#include "gang/gang_matrix.h"
#include "gang/processes.h"
#include "gang/thread_ranks.h"
#include "gang/works_in_flight.h"

namespace gangway::test {
namespace {

// Runs the body in every rank's process, over a gang that they made through the test's store.
template <typename Body>
void run_processes(int size, Body&& body) {
  Processes ranks(size, [&](int rank, const std::shared_ptr<Store>& store, Report&) {
    GangOptions options = thread_rank_options();
    options.rank = rank;
    options.size = size;
    options.store = store;
    const GangPtr root = Gang::create(options);
    EXPECT_STREQ(root->engine_name(), "host");
    body(*root);
    root->shutdown(60'000);
  });
  ranks.expect_all_well();
}

class GangMatrixOfProcesses : public testing::TestWithParam<int> {};

TEST_P(GangMatrixOfProcesses, EveryOperationEqualsTheSerialFold) { run_processes(GetParam(), matrix); }

INSTANTIATE_TEST_SUITE_P(Ranks, GangMatrixOfProcesses, testing::Values(2, 3, 4, 7));

TEST(GangInFlightOfProcesses, WorksThatShareMemoryRunInTheOrderOfTheCalls) {
  run_processes(3, [](Gang& root) { dependent_works(root); });
}

TEST(GangLargeOfProcesses, EveryPathIsRightOverSeveralChunks) { run_processes(3, several_chunks); }

}  // namespace
}  // namespace gangway::test
