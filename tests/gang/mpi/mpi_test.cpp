// The MPI engine under both launchers, on one host and on two.
#include "gang/mpi/mpirun.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

std::string rank(const char* what) { return placed("@build@/tests/gang/mpi/mpi_rank ") + what; }

void expect_well(const Ended& ended, int ranks) {
  EXPECT_FALSE(ended.hung());
  EXPECT_EQ(ended.count("well"), ranks) << ended.output;  // two ranks may share a line
}
// MPI was left in order: every launcher says so.
void expect_well_to_the_end(const Ended& ended, int ranks) {
  expect_well(ended, ranks);
  EXPECT_EQ(ended.status, 0) << ended.output;
}

class MpiEngine : public OnOneHost {};

TEST_P(MpiEngine, EveryOperationEqualsTheSerialFold) {
  expect_well_to_the_end(mpirun(mpi(), ranks(), rank("matrix")), ranks());
}
TEST_P(MpiEngine, LargeSumsOfTwoAndThreeRanksAreRight) {
  for (const int few : {2, 3}) expect_well_to_the_end(mpirun(mpi(), few, rank("large")), few);
}
TEST_P(MpiEngine, WorksThatShareMemoryRunInTheOrderOfTheCalls) {
  expect_well_to_the_end(mpirun(mpi(), ranks(), rank("in_flight")), ranks());
}
TEST_P(MpiEngine, SubGangsBytesNativeHandleAndRefusalsWork) {
  expect_well_to_the_end(mpirun(mpi(), ranks(), rank("children")), ranks());
}
TEST_P(MpiEngine, AGangThatWasShutDownNeedsNoReleaseForAProperEnd) {
  expect_well_to_the_end(mpirun(mpi(), ranks(), rank("kept")), ranks());
}
TEST_P(MpiEngine, DifferentCallsAreNamedOnAllRanks) {
  expect_well(mpirun(mpi(), ranks(), rank("mismatch")), ranks());
}
TEST_P(MpiEngine, ARankThatDoesNotComeIsATimeoutThatNamesIt) {
  expect_well(mpirun(mpi(), ranks(), rank("timeout")), ranks());
}
TEST_P(MpiEngine, ARankThatDiesEndsTheJob) { EXPECT_FALSE(mpirun(mpi(), ranks(), rank("kill")).hung()); }
TEST_P(MpiEngine, ARankThatDiesIsLostToTheSurvivorsThatTheLauncherKeeps) {
  const Ended ended = mpirun(mpi(), ranks(), rank("kill"), keeps_survivors(mpi()));
  expect_survivors(ended, kept(mpi(), ranks()), "PEER_LOST");
}

INSTANTIATE_TEST_SUITE_P(Launchers, MpiEngine, testing::ValuesIn(launches_on_one_host()), mpi_and_ranks);

class MpiHosts : public OnTwoHosts {};

TEST_P(MpiHosts, EveryOperationEqualsTheSerialFold) {
  expect_well(mpirun_on_two_hosts(mpi(), rank("matrix")), kRanks);
}
TEST_P(MpiHosts, RanksWithoutAnEngineNamedMeetByMpi) {
  expect_well(mpirun_on_two_hosts(mpi(), rank("auto")), kRanks);
}
TEST_P(MpiHosts, SubGangsBytesNativeHandleAndRefusalsWork) {
  expect_well(mpirun_on_two_hosts(mpi(), rank("children")), kRanks);
}
TEST_P(MpiHosts, DifferentCallsAreNamedOnAllRanks) {
  expect_well(mpirun_on_two_hosts(mpi(), rank("mismatch")), kRanks);
}
TEST_P(MpiHosts, ARankThatDoesNotComeIsATimeoutThatNamesIt) {
  expect_well(mpirun_on_two_hosts(mpi(), rank("timeout")), kRanks);
}
TEST_P(MpiHosts, ARankThatDiesIsLostToTheSurvivorsThatTheLauncherKeeps) {
  const Ended ended = mpirun_on_two_hosts(mpi(), rank("kill"), keeps_survivors(mpi()));
  expect_survivors(ended, kept(mpi(), kRanks), "PEER_LOST");
}

INSTANTIATE_TEST_SUITE_P(Launchers, MpiHosts, testing::ValuesIn(launches_on_two_hosts()), mpi_alone);

}  // namespace
}  // namespace gangway::test
