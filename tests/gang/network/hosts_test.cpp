// Gangs over several hosts, which are network namespaces of this machine.
#include "gang/network/hosts.h"

#include <chrono>

#include "base/error.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

constexpr int kPeerLost = 10 + static_cast<int>(Code::peer_lost);
constexpr int kTimeout = 10 + static_cast<int>(Code::timeout);
constexpr int kInvalid = 10 + static_cast<int>(Code::invalid_argument);

class Hosts : public OnHosts {
 protected:
  std::string program() const override { return placed("@build@/tests/gang/network/network_rank"); }

  void wait_until_they_begin() {
    for (size_t r = 0; r < children_.size(); ++r)
      for (int i = 0;
           i < 600 && text_of_file(output_of(static_cast<int>(r))).find("began") == std::string::npos; ++i)
        usleep(100'000);
    usleep(300'000);
  }

  void expect_all_well(const std::string& engine = "network") {
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, 0) << one.output;
      EXPECT_NE(one.output.find("engine " + engine), std::string::npos) << one.output;
    }
  }
  // All ranks end with this status, and at least one of them says `words`.
  void expect_all_refused(int status, const std::string& words) {
    std::string said;
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, status) << one.output;
      said += one.output;
    }
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }
  // Runs gangrun over hosts, with namespaces in place of remote hosts.
  Ended gangrun(const std::string& hosts, const std::string& command, const std::string& options = "") const {
    const std::string file = scratch_.path() + "/gangrun";
    const int status =
        std::system((placed("env -u GTEST_OUTPUT timeout 120 @build@/impl/tools/gangrun -n 1 --hosts ") +
                     hosts + placed(" --agent 'bash @source@/tests/gang/mpi/hosts.sh agent' ") + options +
                     " -- " + command + " >" + file + " 2>&1")
                        .c_str());
    return {WEXITSTATUS(status), text_of_file(file)};
  }
  // The line of a run in which every rank prints the same.
  std::string bits(const std::vector<int>& hosts, const std::string& engine, const Variables& more = {}) {
    start(hosts, "bits", more);
    std::string line;
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, 0) << one.output;
      EXPECT_NE(one.output.find("engine " + engine), std::string::npos) << one.output;
      const std::string its = one.output.substr(0, one.output.find('\n'));
      EXPECT_TRUE(line.empty() || line == its) << line << " and " << its;
      line = its;
    }
    return line;
  }
};

using HostsMatrix = Hosts;

TEST_F(Hosts, EveryOperationEqualsTheSerialFoldOnTwoHosts) {
  start({1, 1, 2, 2}, "small");
  expect_all_well();
}

TEST_F(Hosts, LongCallsAreRightWhereverTheRanksAre) {
  for (const std::vector<int>& hosts : {std::vector{1, 1, 2, 2}, std::vector{1, 1, 2, 3},
                                        std::vector{1, 2, 1, 2}, std::vector{1, 2, 2, 2, 3, 3}}) {
    start(hosts, "long");
    expect_all_well();
  }
}

TEST_F(Hosts, EveryKindOfCallsThatDifferIsToldOnEveryRankOfEveryHost) {
  for (const std::vector<int>& hosts : {std::vector{1, 1, 2, 2}, std::vector{1, 2, 2, 3, 3}}) {
    start(hosts, "mismatch");
    expect_all_well();
  }
}

// Rank 0 exchanges nothing with the late rank, so it must wait until a rank that does tells the name.
TEST_F(Hosts, ARankThatDoesNotComeIsNamedOnEveryRankOfEveryHost) {
  start({1, 1, 2, 2}, "late");
  for (const Ended& one : finish()) {
    EXPECT_EQ(one.status, kTimeout) << one.output;
    EXPECT_NE(one.output.find("rank 3 did not come"), std::string::npos) << one.output;
  }
}

// With counts that go between hosts in two levels, and all forms of each call.
TEST_F(HostsMatrix, EveryOperationOfTwoUnevenHostsEqualsTheSerialFold) {
  start({1, 1, 1, 2, 2}, "matrix");
  expect_all_well();
}

TEST_F(Hosts, WorksThatShareMemoryRunInTheOrderOfTheCalls) {
  for (const std::vector<int>& hosts : {std::vector{1, 2}, std::vector{1, 1, 2, 2}}) {
    start(hosts, "in_flight");
    expect_all_well();
  }
}

TEST_F(Hosts, ReductionsHaveTheBitsOfOneHostWhereverTheRanksAre) {
  const std::string one_host = bits({1, 1, 1, 1}, "host");
  EXPECT_EQ(bits({1, 1, 2, 2}, "network"), one_host);
  EXPECT_EQ(bits({1, 2, 1, 2}, "network"), one_host) << "cyclic";
  EXPECT_EQ(bits({1, 1, 2, 3}, "network"), one_host) << "uneven";
  const std::string six = bits({1, 1, 1, 1, 1, 1}, "host");
  EXPECT_EQ(bits({1, 1, 1, 2, 2, 2}, "network"), six) << "parts are folded from host to host";
  EXPECT_EQ(bits({1, 2, 2, 2, 3, 3}, "network"), six) << "and uneven";
}

TEST_F(Hosts, AKilledRankIsNamedOnTheOtherHost) {
  start({1, 2, 2}, "sums");
  wait_until_they_begin();
  kill(children_[1], SIGKILL);
  const std::vector<Ended> all = finish();
  for (const size_t r : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(all[r].status, kPeerLost) << all[r].output;
    EXPECT_NE(all[r].output.find("(peer 1)"), std::string::npos) << all[r].output;
  }
}

// What a rank sends last may be under way for seconds, while the rank has nothing more to do.
TEST_F(Hosts, AnOrderlyEndIsOneAlsoWhereTheLinkIsAwayInTheMiddleOfIt) {
  start({1, 2}, "end");
  wait_until_they_begin();
  ASSERT_TRUE(shell("ip -n " + name(2) + " link set eth0 down"));
  sleep(4);
  ASSERT_TRUE(shell("ip -n " + name(2) + " link set eth0 up"));
  expect_all_well();
}

TEST_F(Hosts, ACutLinkIsNoticedOnBothSides) {
  start({1, 2}, "sums", {{"GANGWAY_LIVENESS_MS", "1000"}});
  wait_until_they_begin();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(shell("ip -n " + name(2) + " link set eth0 down"));
  expect_all_refused(kPeerLost, "(peer 0)");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

// Data between the hosts over libfabric, by its provider for TCP.
class FabricHosts : public Hosts {
 protected:
  void SetUp() override {
#ifdef GANGWAY_HAS_FABRIC
    Hosts::SetUp();
    fabric_ = {{"GANGWAY_WIRE", "fabric"},
               {"FI_PROVIDER", "tcp"},
               { "GANGWAY_MODULES",
                 placed("@build@/capi") }};
#else
    GTEST_SKIP() << "built without libfabric";
#endif
  }
  void expect_all_well_over_fabric() {
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, 0) << one.output;
      EXPECT_NE(one.output.find("libfabric moves data between hosts, provider tcp"), std::string::npos)
          << one.output;
    }
  }
  void ends_one_by(int signal) {
    start({1, 2, 2}, "sums", fabric_);
    wait_until_they_begin();
    kill(children_[1], signal);
    const std::vector<Ended> all = finish();
    EXPECT_EQ(all[1].status, 128 + signal) << all[1].output;
    for (const size_t r : {size_t{0}, size_t{2}}) {
      EXPECT_EQ(all[r].status, kPeerLost) << all[r].output;
      EXPECT_NE(all[r].output.find("(peer 1)"), std::string::npos) << all[r].output;
    }
  }
  Variables fabric_;
};

TEST_F(FabricHosts, CallsOfEveryLengthAreRight) {
  start({1, 2}, "small", fabric_);
  expect_all_well_over_fabric();
  start({1, 1, 2, 3}, "long", fabric_);
  expect_all_well_over_fabric();
}

TEST_F(FabricHosts, ReductionsHaveTheBitsOfOneHost) {
  EXPECT_EQ(bits({1, 1, 2, 2}, "network", fabric_), bits({1, 1, 1, 1}, "host"));
}

TEST_F(FabricHosts, AKilledRankIsNamedOnTheOtherHost) { ends_one_by(SIGKILL); }
// A library that libfabric loads takes these signals, and its handler would keep the crashed rank alive.
TEST_F(FabricHosts, ACrashedRankIsNamedOnTheOtherHost) { ends_one_by(SIGSEGV); }
TEST_F(FabricHosts, ATerminatedRankIsNamedOnTheOtherHost) { ends_one_by(SIGTERM); }

TEST_F(FabricHosts, ACutLinkIsNoticedOnBothSides) {
  Variables more = fabric_;
  more["GANGWAY_LIVENESS_MS"] = "1000";
  start({1, 2}, "sums", more);
  wait_until_they_begin();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(shell("ip -n " + name(2) + " link set eth0 down"));
  expect_all_refused(kPeerLost, "(peer 0)");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

TEST_F(FabricHosts, RanksThatDoNotAgreeOnItAreRefused) {
  start_rank(0, {1, 2}, "small", fabric_);
  start_rank(1, {1, 2}, "small", {});
  expect_all_refused(kInvalid, "rank 1 moves data between hosts by sockets, rank 0 by libfabric tcp");
}

TEST_F(Hosts, ARankWithoutTheModuleForLibfabricTellsTheOthers) {
  start_rank(0, {1, 2}, "small", {});
  start_rank(1, {1, 2}, "small", {{"GANGWAY_WIRE", "fabric"}, {"GANGWAY_MODULES", scratch_.path()}});
  for (const Ended& one : finish()) {
    EXPECT_NE(one.status, 0);
    EXPECT_NE(one.output.find("libgangway_fabric.so"), std::string::npos) << one.output;
  }
}

TEST_F(Hosts, AWrongSecretIsRefused) {
  const std::string other = write_secret("other", 'o');
  start_rank(0, {1, 2}, "small", {});
  start_rank(1, {1, 2}, "small", {{"GANGWAY_SECRET_FILE", other}});
  sleep(3);
  kill(children_[0], SIGKILL);
  const std::vector<Ended> all = finish();
  EXPECT_NE(all[1].status, 0);
  EXPECT_NE(all[1].output.find("does not know this gang's secret"), std::string::npos) << all[1].output;
}

TEST_F(Hosts, WithoutASecretTheTextSaysHowToMakeOne) {
  start({1, 2}, "small", {{"GANGWAY_SECRET_FILE", ""}});
  expect_all_refused(kInvalid, "head -c 32 /dev/urandom");
}

TEST_F(Hosts, AnAddressThatTheHostDoesNotHaveIsRefused) {
  start({1, 2}, "small", {{"GANGWAY_INTERFACE", "10.99.9.9"}, {"MASTER_ADDR", "10.77.0.1"}});
  usleep(3'000'000);
  kill(children_[1], SIGKILL);  // it cannot know why rank 0 does not come
  const std::vector<Ended> all = finish();
  EXPECT_NE(all[0].status, 0);
  EXPECT_NE(all[0].output.find("10.99.9.9"), std::string::npos) << all[0].output;
}

TEST_F(Hosts, ARankThatCannotListenTellsTheOthers) {
  start_rank(0, {1, 2}, "small", {});
  start_rank(1, {1, 2}, "small", {{"GANGWAY_INTERFACE", "10.99.9.9"}});
  for (const Ended& one : finish()) {
    EXPECT_NE(one.status, 0);
    EXPECT_NE(one.output.find("10.99.9.9"), std::string::npos) << one.output;
  }
}

TEST_F(Hosts, AnInterfaceMayBeGivenByItsName) {
  start({1, 2}, "small", {{"GANGWAY_INTERFACE", "eth0"}});
  expect_all_well();
}

TEST_F(Hosts, AHostNameThatIsItsOwnLoopbackIsReachedFromElsewhere) {
  for (int host = 1; host <= 2; ++host) {
    ASSERT_TRUE(shell("mkdir -p /etc/netns/" + name(host)));
    std::ofstream("/etc/netns/" + name(host) + "/hosts")
        << "127.0.0.1 localhost\n"
        << (host == 1 ? "127.0.1.1 " : "10.77.0.1 ") << name(1) << "\n";
  }
  start({1, 1, 2}, "small", {{"MASTER_ADDR", name(1)}});
  expect_all_well();
}

TEST_F(Hosts, HostsMeetByIPv6) {
  for (int host = 1; host <= 2; ++host)
    ASSERT_TRUE(
        shell("ip -n " + name(host) + " addr add fd77::" + std::to_string(host) + "/64 dev eth0 nodad"));
  start({1, 2}, "small", {{"MASTER_ADDR", "[fd77::1]"}});
  expect_all_well();
}

TEST_F(Hosts, StrangersDoNotDisturbAStart) {
  const pid_t stranger = fork();
  if (stranger == 0) {
    const std::string noise =
        "for i in $(seq 40); do for port in 29500 29501 $(ss -Hltn | awk '{print $4}' | sed 's/.*://'); do "
        "timeout 1 bash -c \"head -c 3000 /dev/urandom >/dev/tcp/10.77.0.1/$port\"; done; done >/dev/null "
        "2>&1";
    execlp("ip", "ip", "netns", "exec", name(1).c_str(), "bash", "-c", noise.c_str(), nullptr);
    _exit(127);
  }
  usleep(200'000);
  start({1, 1, 2}, "small");
  expect_all_well();
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
}

TEST_F(Hosts, GangrunStartsTheRanksOfEveryHost) {
  const Ended ended =
      gangrun(name(1) + ":2," + name(2), placed("@build@/tests/gang/network/network_rank bits"));
  EXPECT_EQ(ended.status, 0) << ended.output;
  for (const char* const line : {"[0] engine network", "[1] engine network", "[2] engine network"})
    EXPECT_NE(ended.output.find(line), std::string::npos) << ended.output;
}

TEST_F(Hosts, GangrunNamesTheInterfaceOfEveryHostForNccl) {
  const Ended ended = gangrun(name(1) + "," + name(2), "printenv NCCL_SOCKET_IFNAME");
  EXPECT_EQ(ended.status, 0) << ended.output;
  for (const char* const line : {"[0] =eth0", "[1] =eth0"})
    EXPECT_NE(ended.output.find(line), std::string::npos) << ended.output;
}

TEST_F(Hosts, GangrunStartsTheRanksOfAllHostsAgainWhenOneFails) {
  const Ended ended = gangrun(name(1) + "," + name(2),
                              placed("bash -c '[ $RANK$GANGWAY_RESTART_COUNT = 10 ] && kill -9 $$; exec "
                                     "@build@/tests/gang/network/network_rank small'"),
                              "--max-restarts 2");
  EXPECT_EQ(ended.status, 0) << ended.output;
  for (const char* const line : {"restart 1 of 2", "[0] engine network", "[1] engine network"})
    EXPECT_NE(ended.output.find(line), std::string::npos) << ended.output;
  EXPECT_EQ(ended.output.find("restart 2 of 2"), std::string::npos) << ended.output;
}

TEST_F(Hosts, GangrunReturnsTheStatusOfTheRankThatFailed) {
  const Ended ended = gangrun(name(1) + "," + name(2), "bash -c '[ $RANK = 0 ] && exec sleep 100; exit 7'");
  EXPECT_EQ(ended.status, 7) << ended.output;
  EXPECT_NE(ended.output.find("rank 1 (process"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("host " + name(2)), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace gangway::test
