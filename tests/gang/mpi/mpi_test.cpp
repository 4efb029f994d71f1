// The MPI engine under both launchers, on one host and on two (network namespaces joined by veth).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>

#include "base/error.h"

namespace gangway::test {
namespace {

struct Ended {
  int status;
  std::string output;
};

Ended run(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) output += line;
  return {pclose(pipe), output};
}

bool is_built(const std::string& mpi) {
#ifdef GANGWAY_HAS_openmpi
  if (mpi == "openmpi") return true;
#endif
#ifdef GANGWAY_HAS_mpich
  if (mpi == "mpich") return true;
#endif
  return false;
}

std::string settings(const std::string& mpi) {
  const std::string modules = GANGWAY_MODULE_FOLDER_OF_TEST;
  return mpi == "openmpi" ? "-x GANGWAY_MODULES=" + modules : "-genv GANGWAY_MODULES " + modules;
}

std::string launcher(const std::string& mpi, int ranks, const std::string& more = "") {
  const std::string count = " -n " + std::to_string(ranks) + " " + settings(mpi) + " " + more + " ";
  return "timeout 280 " +
         (mpi == "openmpi" ? "mpirun.openmpi --oversubscribe --allow-run-as-root --bind-to none" + count
                           : "mpiexec.mpich" + count) +
         GANGWAY_MPI_RANK + " ";
}

int wells(const std::string& output) {
  int count = 0;
  for (size_t at = 0; (at = output.find("well\n", at)) != std::string::npos; at += 5) ++count;
  return count;
}

class MpiEngine : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string mpi() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  void SetUp() override {
    if (!is_built(mpi())) GTEST_SKIP() << mpi() << " was not found at build";
  }
  Ended expect_well(const char* what) const {
    const Ended ended = run(launcher(mpi(), ranks()) + what);
    EXPECT_EQ(wells(ended.output), ranks()) << ended.output;
    return ended;
  }
  void expect_well_to_the_end(const char* what) const {
    const Ended ended = expect_well(what);
    EXPECT_EQ(ended.status, 0) << ended.output;
  }
};

TEST_P(MpiEngine, EveryOperationEqualsTheSerialFold) { expect_well_to_the_end("matrix"); }
TEST_P(MpiEngine, ChildrenBytesHandleAndRefusals) { expect_well_to_the_end("children"); }
// After these MPI is left without its end, of which launchers think differently.
TEST_P(MpiEngine, DifferentCallsAreNamedOnAllRanks) { expect_well("mismatch"); }
TEST_P(MpiEngine, ARankThatDoesNotComeIsATimeoutThatNamesIt) { expect_well("timeout"); }

TEST_P(MpiEngine, ARankThatDiesEndsTheJobOrIsLostToTheSurvivors) {
  const std::string keep = mpi() == "mpich" ? "-disable-auto-cleanup" : "";  // Open MPI ends all
  const Ended ended = run(launcher(mpi(), ranks(), keep) + "kill");
  EXPECT_NE(ended.status, 124 << 8) << "hung: " << ended.output;
  EXPECT_EQ(ended.output.find("failed: "), std::string::npos) << ended.output;
  if (mpi() == "mpich") {
    EXPECT_NE(ended.output.find("survivor 0: PEER_LOST"), std::string::npos) << ended.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Launchers, MpiEngine,
                         testing::Combine(testing::Values("openmpi", "mpich"), testing::Values(2, 4)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "On" +
                                  std::to_string(std::get<1>(info.param));
                         });

// Two hosts: network namespaces of this machine, if it lets us make them.
class MpiHosts : public testing::TestWithParam<const char*> {
 protected:
  static constexpr const char* kPrefix = "gwmpi";
  void SetUp() override {
    if (!is_built(GetParam())) GTEST_SKIP() << GetParam() << " was not found at build";
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    const Ended up = run(std::string("bash " GANGWAY_HOSTS " up 2 ") + kPrefix);
    made_ = true;
    if (up.status != 0) GTEST_SKIP() << "no network namespaces here: " << up.output;
  }
  void TearDown() override {
    if (made_) run(std::string("bash " GANGWAY_HOSTS " down ") + kPrefix);
  }
  Ended on_two_hosts(const std::string& what) const {
    const std::string one = std::string(kPrefix) + "1", two = std::string(kPrefix) + "2";
    const std::string hosts = one + ":2," + two + ":2";
    const std::string agent = "/tmp/gangway_mpi_agent." + std::to_string(getpid());
    run("printf '#!/bin/sh\nexec bash " GANGWAY_HOSTS " agent \"$@\"\n' > " + agent + " && chmod +x " +
        agent);
    const std::string mpirun =
        std::string(GetParam()) == "openmpi"
            ? "mpirun.openmpi --oversubscribe --allow-run-as-root --bind-to none -n 4 --host " + hosts +
                  " --mca plm_rsh_agent " + agent +
                  " --mca btl tcp,self,vader --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 " +
                  settings(GetParam())
            : "mpiexec.mpich -launcher ssh -launcher-exec " + agent + " -iface eth0 -n 4 -hosts " + hosts +
                  " " + settings(GetParam());
    const Ended ended = run("ip netns exec " + one + " unshare --uts bash -c \"hostname " + one +
                            "; timeout 280 " + mpirun + " " GANGWAY_MPI_RANK " " + what + "\"");
    std::remove(agent.c_str());
    return ended;
  }
  void expect_well(const char* what) const {
    const Ended ended = on_two_hosts(what);
    EXPECT_EQ(wells(ended.output), 4) << ended.output;
  }

 private:
  bool made_ = false;
};

TEST_P(MpiHosts, EveryOperationEqualsTheSerialFold) { expect_well("matrix"); }
TEST_P(MpiHosts, ChildrenBytesHandleAndRefusals) { expect_well("children"); }
TEST_P(MpiHosts, DifferentCallsAreNamedOnAllRanks) { expect_well("mismatch"); }
TEST_P(MpiHosts, ARankThatDoesNotComeIsATimeoutThatNamesIt) { expect_well("timeout"); }

INSTANTIATE_TEST_SUITE_P(Launchers, MpiHosts, testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gangway::test
