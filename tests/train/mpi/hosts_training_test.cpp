// Sharded training over several hosts without MPI, against the references of one rank.
#include "gang/network/hosts.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

class HostsTraining : public OnHosts {
 protected:
  std::string program() const override { return placed("@build@/tests/train/mpi/mpi_training_rank"); }

  void expect_training(const std::vector<int>& hosts, const std::string& tests) {
    start(hosts, "--gtest_filter=" + tests, {{"GANGWAY_TEST_ENGINE", "auto"}});
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, 0) << one.output;
      EXPECT_EQ(one.output.find("[  PASSED  ] 0 tests"), std::string::npos) << tests << " names no test";
    }
  }
};

TEST_F(HostsTraining, FiveStepsOfEveryMeshOverTwoHostsAreTheReferences) {
  expect_training({1, 1, 2, 2}, "MpiTraining.Losses*");
}

TEST_F(HostsTraining, GradientsAndSavedModelsAreRightOverThreeUnevenHosts) {
  expect_training({1, 2, 1, 3}, "MpiTraining.EveryGradient*:MpiTraining.AModel*");
}

}  // namespace
}  // namespace gangway::test
