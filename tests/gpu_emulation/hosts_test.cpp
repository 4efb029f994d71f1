// Gangs of GPUs over several hosts, which are network namespaces of this machine: NCCL between the hosts,
// with the engine "network" as its control plane and its watch. Each rank is a process with software GPUs of
// its own. The emulated NCCL moves no bytes over the network, but it is told of hosts and interfaces as NCCL
// is.
#include <algorithm>
#include <chrono>
#include <map>

#include "base/expect_error.h"
#include "gang/nccl/greeting.h"
#include "gang/network/hosts.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

constexpr int kPeerLost = 10 + static_cast<int>(Code::peer_lost);

class CudaHosts : public OnHosts {
 protected:
  std::string program() const override { return placed("@build@/tests/gpu_emulation/cuda_hosts_rank"); }

  // Each rank of a host has a GPU of its own, by its number on the host.
  void start_on(const std::vector<int>& hosts, const std::string& what, const Variables& more = {}) {
    std::map<int, int> ranks;
    for (size_t r = 0; r < hosts.size(); ++r) {
      Variables own = more;
      own["LOCAL_RANK"] = std::to_string(ranks[hosts[r]]++);
      own["LOCAL_WORLD_SIZE"] = std::to_string(std::count(hosts.begin(), hosts.end(), hosts[r]));
      start_rank(static_cast<int>(r), hosts, what, own);
    }
  }
  void wait_until_they_begin() {
    for (size_t r = 0; r < children_.size(); ++r)
      for (int i = 0;
           i < 600 && text_of_file(output_of(static_cast<int>(r))).find("began") == std::string::npos; ++i)
        usleep(100'000);
  }
  std::string output_of_all(const std::vector<int>& hosts, const std::string& what) {
    start_on(hosts, what);
    std::string all;
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, 0) << one.output;
      all += one.output;
    }
    return all;
  }
};

TEST_F(CudaHosts, NcclConnectsThemByTheInterfaceOfTheirRoute) {
  // An interface that comes first by its name, and that other hosts do not reach.
  for (int host = 1; host <= 3; ++host)
    ASSERT_TRUE(shell("ip -n " + name(host) + " link add aaa0 type veth peer name aaa1 && ip -n " +
                      name(host) + " addr add 10.78.0.1/24 dev aaa0 && ip -n " + name(host) +
                      " link set aaa0 up"));
  start_on({1, 1, 2}, "small");
  for (const Ended& one : finish()) {
    EXPECT_EQ(one.status, 0) << one.output;
    EXPECT_NE(one.output.find("engine nccl, interface \"=eth0\""), std::string::npos) << one.output;
  }
}

TEST_F(CudaHosts, AnInterfaceOfTheUserStays) {
  start_on({1, 2}, "small", {{"NCCL_SOCKET_IFNAME", "eth,lo"}});
  for (const Ended& one : finish()) {
    EXPECT_EQ(one.status, 0) << one.output;
    EXPECT_NE(one.output.find("engine nccl, interface \"eth,lo\""), std::string::npos) << one.output;
  }
}

TEST_F(CudaHosts, TrainingHasTheBitsOfOneHost) {
  const std::string one_host = output_of_all({1, 1}, "train");
  EXPECT_NE(one_host.find("parameters"), std::string::npos);
  EXPECT_EQ(output_of_all({1, 2}, "train"), one_host);
}

// Between hosts, these versions give handles of plain registrations where they are asked for windows.
TEST_F(CudaHosts, TheLogSaysWindowsOnlyWhereNcclMakesThem) {
  const auto logged = [&](const std::vector<int>& hosts) {
    start_on(hosts, "register", {{"GPU_EMULATION_NCCL", "22703"}});
    std::string all;
    for (const Ended& one : finish()) {
      EXPECT_EQ(one.status, 0) << one.output;
      EXPECT_NE(one.output.find("registered 1"), std::string::npos) << one.output;
      all += one.output;
    }
    return all;
  };
  const std::string one_host = logged({1, 1}), two_hosts = logged({1, 2});
  EXPECT_NE(one_host.find("NCCL 2.27.3 moves the buffers of sharded training in windows"), std::string::npos)
      << one_host;
  EXPECT_NE(two_hosts.find("NCCL 2.27.3 moves the buffers of sharded training in registered memory, without"),
            std::string::npos)
      << two_hosts;
  EXPECT_EQ(two_hosts.find("in windows"), std::string::npos) << two_hosts;
}

TEST_F(CudaHosts, AKilledRankIsNamedOnTheOtherHost) {
  start_on({1, 2, 2}, "sums");
  wait_until_they_begin();
  kill(children_[1], SIGKILL);
  const std::vector<Ended> all = finish();
  for (const size_t r : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(all[r].status, kPeerLost) << all[r].output;
    EXPECT_NE(all[r].output.find("(peer 1)"), std::string::npos) << all[r].output;
  }
}

TEST_F(CudaHosts, ACutLinkEndsTheCallsOfBothSides) {
  start_on({1, 2}, "sums", {{"GANGWAY_LIVENESS_MS", "1000"}});
  wait_until_they_begin();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(shell("ip -n " + name(2) + " link set eth0 down"));
  const std::vector<Ended> all = finish();
  for (size_t r = 0; r < all.size(); ++r) {
    EXPECT_EQ(all[r].status, kPeerLost) << all[r].output;
    EXPECT_NE(all[r].output.find(text("(peer ", 1 - r, ")")), std::string::npos) << all[r].output;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

std::vector<nccl::Greeting> greetings(const std::vector<char>& hosts, int version) {
  std::vector<nccl::Greeting> all(hosts.size());
  for (size_t r = 0; r < hosts.size(); ++r) {
    all[r].identity.host[0] = hosts[r];
    all[r].version = version;
  }
  return all;
}

TEST(CudaGreetings, VersionsOfNcclThatDifferAreRefusedWithBoth) {
  auto all = greetings({'a', 'a', 'b'}, 22803);
  nccl::check(all, "gang");
  all[2].version = 22907;
  expect_error(Code::invalid_state,
               "gang: rank 0 has NCCL 2.28.3, rank 2 has NCCL 2.29.7; install the same version on every host",
               [&] { nccl::check(all, "gang"); });
}

TEST(CudaGreetings, PoliciesThatDifferAreRefusedInTheUsersWords) {
  auto all = greetings({'a', 'a', 'b'}, 22803);
  all[2].cta_policy = nccl::kZeroPolicy;
  expect_error(
      Code::invalid_state,
      "gang: GANGWAY_NCCL_CTA_POLICY stands for default on rank 0 and for zero on rank 2; set the same "
      "value on every rank",
      [&] { nccl::check(all, "gang"); });
  EXPECT_EQ(nccl::policy_text(nccl::kEfficiencyPolicy), "efficiency");
}

TEST(CudaGreetings, AVersionThatHangsWithUnevenHostsIsRefusedForThemAlone) {
  nccl::check(greetings({}, 23102), "gang");
  nccl::check(greetings({'a'}, 23102), "gang");
  nccl::check(greetings({'a', 'b', 'a', 'b'}, 23102), "gang");
  nccl::check(greetings({'a', 'a', 'b'}, 22803), "gang");
  expect_error(
      Code::not_supported,
      "gang: its hosts have 2 and 1 ranks, and NCCL 2.31.2 hangs when it connects hosts with different "
      "numbers of ranks; install another version of NCCL, or use as many ranks on every host",
      [&] {
        nccl::check(greetings({'a', 'a', 'b'}, 23102), "gang");
      });
}

TEST(CudaGreetings, UnevenHostsAreListedInTheOrderOfTheirRanks) {
  EXPECT_EQ(nccl::uneven_hosts(greetings({'b', 'a', 'a', 'c', 'c', 'c'}, 0)), "1, 2 and 3");
  EXPECT_EQ(nccl::uneven_hosts(greetings({'b', 'a'}, 0)), "");
}

}  // namespace
}  // namespace gangway::test
