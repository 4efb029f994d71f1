#include "gang/mpi/mpirun.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <utility>

#include "gang/mpi/survivor.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

// Names of hosts are this and a number: other tests of this machine have hosts of their own.
std::string hosts_prefix() { return "gwm" + std::to_string(getpid()) + "h"; }
constexpr int kTimedOut = 124;  // of timeout(1)

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Ended run(const std::string& command) {
  const std::string file =
      "/tmp/gangway_mpi_output." + std::to_string(getpid());  // a pipe may be held by who is left
  const int status = std::system(("(" + command + ") >" + file + " 2>&1").c_str());
  const std::string output = read(file);
  std::remove(file.c_str());
  return {status, output};
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

std::string report() { return "/tmp/gangway_mpi_report." + std::to_string(getpid()); }

int count_of(const std::string& words, const std::string& text) {
  int found = 0;
  for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++found;
  return found;
}

// What they wrote; waits for them.
std::string told_by_survivors(int least) {
  std::string told;
  for (int i = 0; i < 200 && (i < 10 || count_of("\n", told) < least); ++i) {
    usleep(100'000);
    told = read(report());
  }
  std::remove(report().c_str());
  return told;
}

std::string launcher(const std::string& mpi, int ranks, const std::string& options) {
  const bool open = mpi == "openmpi";
  std::remove(report().c_str());
  std::string line = "env -u GTEST_OUTPUT timeout -k 5 " +  // the ranks' results are not this program's
                     std::to_string(options.find(keeps_survivors(mpi)) == std::string::npos ? 280 : 60);
  line += open ? " mpirun.openmpi --oversubscribe --allow-run-as-root --bind-to none" : " mpiexec.mpich";
  const std::pair<std::string, std::string> variables[] = {
      {"GANGWAY_MODULES", placed("@build@/capi")},
      {kReportVariable, report()},
      // The libraries of MPI leave what they took when they began.
      {"ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"}};
  for (const auto& [name, value] : variables)
    line += open ? " -x " + name + "=" + value : " -genv " + name + " " + value;
  return line + " -n " + std::to_string(ranks) + " " + options + " ";
}

}  // namespace

bool Ended::hung() const { return WIFEXITED(status) && WEXITSTATUS(status) == kTimedOut; }

int Ended::count(const std::string& words) const { return count_of(words, output); }

Ended mpirun(const std::string& mpi, int ranks, const std::string& program, const std::string& options) {
  return run(launcher(mpi, ranks, options) + program);
}

Ended mpirun_on_two_hosts(const std::string& mpi, const std::string& program, const std::string& options) {
  const std::string one = hosts_prefix() + "1", two = hosts_prefix() + "2";
  const std::string hosts = one + ":2," + two + ":2";
  const std::string agent = "/tmp/gangway_mpi_agent." + std::to_string(getpid());
  run(placed("printf '#!/bin/sh\nexec bash @source@/tests/gang/mpi/hosts.sh agent \"$@\"\n' > ") + agent +
      " && chmod +x " + agent);
  const std::string network = mpi == "openmpi"
                                  ? "--host " + hosts + " --mca plm_rsh_agent " + agent +
                                        " --mca btl tcp,self,vader --mca btl_tcp_if_include eth0"
                                        " --mca oob_tcp_if_include eth0"
                                  : "-launcher ssh -launcher-exec " + agent + " -iface eth0 -hosts " + hosts;
  const std::string command = "ip netns exec " + one + " unshare --uts bash -c \"hostname " + one + "; " +
                              launcher(mpi, 4, network + " " + options) + program + "\"";
  const Ended ended = run(command);
  std::remove(agent.c_str());
  return ended;
}

std::string keeps_survivors(const std::string& mpi) {
  return mpi == "openmpi" ? "--enable-recovery" : "-disable-auto-cleanup";
}

int kept(const std::string& mpi, int ranks) { return mpi == "openmpi" ? ranks - 1 : 0; }

void expect_survivors(const Ended& ended, int least, const std::string& codes) {
  const std::string told = told_by_survivors(least);
  EXPECT_GE(count_of("\n", told), least) << told << ended.output;
  const std::regex line("survivor \\d+: (" + codes + "): .*");
  std::istringstream lines(told);
  for (std::string one; std::getline(lines, one);) EXPECT_TRUE(std::regex_match(one, line)) << one;
}

namespace {
bool all_launches() { return std::getenv("GANGWAY_TEST_ALL") != nullptr; }
}  // namespace

std::vector<std::tuple<const char*, int>> launches_on_one_host() {
  if (all_launches()) return {{"openmpi", 2}, {"openmpi", 4}, {"mpich", 2}, {"mpich", 4}};
  return {{"openmpi", 4}, {"mpich", 2}};  // Open MPI keeps survivors: more of them tell more
}

std::vector<const char*> launches_on_two_hosts() {
  if (all_launches()) return {"openmpi", "mpich"};
  return {"openmpi"};
}

void OnOneHost::SetUp() {
  if (!is_built(mpi())) GTEST_SKIP() << mpi() << " was not found at build";
}

std::string mpi_and_ranks(const testing::TestParamInfo<OnOneHost::ParamType>& info) {
  return std::string(std::get<0>(info.param)) + "On" + std::to_string(std::get<1>(info.param));
}

void OnTwoHosts::SetUp() {
  if (!is_built(mpi())) GTEST_SKIP() << mpi() << " was not found at build";
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  made_ = true;
  const Ended up = run(placed("bash @source@/tests/gang/mpi/hosts.sh up 2 ") + hosts_prefix());
  if (up.status != 0) GTEST_SKIP() << "no network namespaces here: " << up.output;
}

void OnTwoHosts::TearDown() {
  if (made_) run(placed("bash @source@/tests/gang/mpi/hosts.sh down ") + hosts_prefix());
}

std::string mpi_alone(const testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace gangway::test
