// Tests whose ranks a launcher of MPI starts, over the module of that MPI: on one host, and on two (network namespaces
// joined by veth). They are skipped where an MPI was not found at build, or no namespaces can be made.
//
// Thread rule: one test at a time; the names of the hosts are the machine's.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace gangway::test {

struct Ended {
  int status;  // as waitpid tells it
  std::string output;

  bool hung() const;
  int count(const std::string& words) const;
};

// `ranks` processes of `program`, with its arguments, by the launcher of "openmpi" or "mpich".
Ended mpirun(const std::string& mpi, int ranks, const std::string& program, const std::string& options = "");
// Four ranks, two on each of two hosts; `options` of the launcher.
Ended mpirun_on_two_hosts(const std::string& mpi, const std::string& program,
                          const std::string& options = "");
// Options by which a launcher lets ranks live when one has died.
std::string keeps_survivors(const std::string& mpi);
// How many it surely keeps when one rank has died. MPICH's says that it keeps them, but ends with the rank, and at times
// ends others before they can tell.
int kept(const std::string& mpi, int ranks);

// Survivors, at least so many, were told by one of the codes, "PEER_LOST|TIMEOUT". A launcher that was told to keep them
// may hang afterwards: that is not theirs.
void expect_survivors(const Ended& ended, int least, const std::string& codes);

// The launchers that a suite runs under. GANGWAY_TEST_ALL=1: each, with each number of ranks; else every test runs
// once under each MPI on one host, and under one of them on two.
std::vector<std::tuple<const char*, int>> launches_on_one_host();
std::vector<const char*> launches_on_two_hosts();

class OnOneHost : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string mpi() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  void SetUp() override;
};
std::string mpi_and_ranks(const testing::TestParamInfo<OnOneHost::ParamType>& info);

class OnTwoHosts : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kRanks = 4;
  std::string mpi() const { return GetParam(); }
  void SetUp() override;
  void TearDown() override;

 private:
  bool made_ = false;
};
std::string mpi_alone(const testing::TestParamInfo<const char*>& info);

}  // namespace gangway::test
