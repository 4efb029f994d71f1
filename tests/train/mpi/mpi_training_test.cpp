// Sharded training over the MPI engine under both launchers, on one host and on two.
#include "gang/mpi/mpirun.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

std::string rank(const std::string& tests) {
  return placed("@build@/tests/train/mpi/mpi_training_rank") +
         " --gtest_brief=1 --gtest_color=no --gtest_filter=" + tests;
}

void expect_passed(const Ended& ended, int ranks) {
  EXPECT_FALSE(ended.hung());
  EXPECT_EQ(ended.count("3 tests passed\n"), ranks) << ended.output;
  EXPECT_EQ(ended.status, 0) << ended.output;
}
void expect_well(const Ended& ended, int ranks) {
  EXPECT_FALSE(ended.hung());
  EXPECT_EQ(ended.count("well"), ranks) << ended.output;  // counts words, because two ranks may share a line
}

class MpiTraining : public OnOneHost {};

TEST_P(MpiTraining, StepsGradientsAndFilesAreOneDevices) {
  expect_passed(mpirun(mpi(), ranks(), rank("MpiTraining.*")), ranks());
}
TEST_P(MpiTraining, StepsThatDifferAreAMismatchOnAllRanks) {
  expect_well(mpirun(mpi(), ranks(), rank("*.StepsThatDiffer*")), ranks());
}
TEST_P(MpiTraining, ARankThatDoesNotStepIsATimeout) {
  expect_well(mpirun(mpi(), ranks(), rank("*.ARankThatDoesNotStep*")), ranks());
}
TEST_P(MpiTraining, ARankThatDiesBetweenStepsIsLostToTheSurvivors) {
  expect_survivors(mpirun(mpi(), ranks(), rank("*.ARankThatDies*"), keeps_survivors(mpi())),
                   kept(mpi(), ranks()), "PEER_LOST");
}

INSTANTIATE_TEST_SUITE_P(Launchers, MpiTraining, testing::ValuesIn(launches_on_one_host()), mpi_and_ranks);

class MpiTrainingHosts : public OnTwoHosts {};

TEST_P(MpiTrainingHosts, StepsGradientsAndFilesAreOneDevices) {
  expect_passed(mpirun_on_two_hosts(mpi(), rank("MpiTraining.*")), kRanks);
}
TEST_P(MpiTrainingHosts, StepsThatDifferAreAMismatchOnAllRanks) {
  expect_well(mpirun_on_two_hosts(mpi(), rank("*.StepsThatDiffer*")), kRanks);
}
TEST_P(MpiTrainingHosts, ARankThatDiesBetweenStepsIsLostOrATimeoutToTheSurvivors) {
  expect_survivors(mpirun_on_two_hosts(mpi(), rank("*.ARankThatDies*"), keeps_survivors(mpi())),
                   kept(mpi(), kRanks), "PEER_LOST|TIMEOUT");
}

INSTANTIATE_TEST_SUITE_P(Launchers, MpiTrainingHosts, testing::ValuesIn(launches_on_two_hosts()), mpi_alone);

}  // namespace
}  // namespace gangway::test
