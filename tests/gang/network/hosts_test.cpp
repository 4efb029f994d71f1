// Gangs over several hosts, which are network namespaces of this machine. Skipped where these cannot be made.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "gang/launchers.h"
#include "support/scratch.h"

namespace gangway::test {
namespace {

constexpr int kPeerLost = 10 + static_cast<int>(Code::peer_lost);
constexpr int kInvalid = 10 + static_cast<int>(Code::invalid_argument);

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

struct Ended {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    is_up_ = true;
    if (!shell("bash " GANGWAY_HOSTS " up 3 " + prefix())) GTEST_SKIP() << "no network namespaces here";
    secret_ = write_secret("secret", 's');
  }
  void TearDown() override {
    if (!is_up_) return;
    shell("bash " GANGWAY_HOSTS " down " + prefix());
    for (int host = 1; host <= 3; ++host) shell("rm -rf /etc/netns/" + name(host));
  }

  // Names of hosts are this and a number: other tests of this machine have hosts of their own.
  const std::string& prefix() const { return prefix_; }
  std::string name(int host) const { return prefix_ + std::to_string(host); }

  std::string write_secret(const std::string& file, char byte) {
    std::string path = scratch_.path() + "/" + file;
    std::ofstream(path) << std::string(32, byte);
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }

  // Starts one rank on each host of the list, in rank order.
  void start(const std::vector<int>& hosts, const std::string& what, const Variables& more = {}) {
    for (size_t r = 0; r < hosts.size(); ++r) start_rank(static_cast<int>(r), hosts, what, more);
  }
  void start_rank(int rank, const std::vector<int>& hosts, const std::string& what, const Variables& more) {
    const std::string file = output_of(rank);
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      const int out = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, 1);
      dup2(out, 2);
      forget_launchers();
      unsetenv("GTEST_OUTPUT");
      Variables all = {{"RANK", std::to_string(rank)},
                       {"WORLD_SIZE", std::to_string(hosts.size())},
                       {"MASTER_ADDR", "10.77.0.1"},
                       {"MASTER_PORT", "29500"},
                       {"GANGWAY_SECRET_FILE", secret_}};
      for (const auto& [variable, value] : more) all[variable] = value;
      for (const auto& [variable, value] : all)
        value.empty() ? unsetenv(variable.c_str()) : setenv(variable.c_str(), value.c_str(), 1);
      const std::string host = name(hosts[static_cast<size_t>(rank)]);
      execlp("ip", "ip", "netns", "exec", host.c_str(), GANGWAY_NETWORK_RANK, what.c_str(), nullptr);
      _exit(127);
    }
    children_.push_back(child);
  }
  std::string output_of(int rank) const { return scratch_.path() + "/out." + std::to_string(rank); }

  void wait_until_they_begin() {
    for (size_t r = 0; r < children_.size(); ++r)
      for (int i = 0; i < 600 && read(output_of(static_cast<int>(r))).find("began") == std::string::npos; ++i)
        usleep(100'000);
    usleep(300'000);
  }

  std::vector<Ended> finish() {
    std::vector<Ended> all;
    for (size_t r = 0; r < children_.size(); ++r) {
      int status = 0;
      waitpid(children_[r], &status, 0);
      all.push_back({WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                     read(output_of(static_cast<int>(r)))});
    }
    children_.clear();
    return all;
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
      EXPECT_NE(one.status, 0) << one.output;
      if (status != 0) {
        EXPECT_EQ(one.status, status) << one.output;
      }
      said += one.output;
    }
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }
  // The line of a run in which every rank prints the same.
  std::string bits(const std::vector<int>& hosts, const std::string& engine) {
    start(hosts, "bits");
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

  const std::string prefix_ = "gwn" + std::to_string(getpid()) + "h";
  Scratch scratch_;
  std::string secret_;
  std::vector<pid_t> children_;
  bool is_up_ = false;
};

TEST_F(Hosts, EveryOperationEqualsTheSerialFoldOnTwoHosts) {
  start({1, 1, 2, 2}, "small");
  expect_all_well();
}

TEST_F(Hosts, ReductionsHaveTheBitsOfOneHostWhereverTheRanksAre) {
  const std::string one_host = bits({1, 1, 1, 1}, "host");
  EXPECT_EQ(bits({1, 1, 2, 2}, "network"), one_host);
  EXPECT_EQ(bits({1, 2, 1, 2}, "network"), one_host) << "cyclic";
  EXPECT_EQ(bits({1, 1, 2, 3}, "network"), one_host) << "uneven";
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

TEST_F(Hosts, ACutLinkIsNoticedOnBothSides) {
  start({1, 2}, "sums", {{"GANGWAY_LIVENESS_MS", "1000"}});
  wait_until_they_begin();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(shell("ip -n " + name(2) + " link set eth0 down"));
  expect_all_refused(kPeerLost, "(peer 0)");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

TEST_F(Hosts, AWrongSecretIsRefused) {
  const std::string other = write_secret("other", 'o');
  start_rank(0, {1, 2}, "small", {{"GANGWAY_TIMEOUT_MS", "4000"}});
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

TEST_F(Hosts, AnInterfaceMayBeGivenByItsName) {
  start({1, 2}, "small", {{"GANGWAY_INTERFACE", "eth0"}});
  expect_all_well();
}

TEST_F(Hosts, AHostNameThatIsItsOwnLoopbackIsReachedFromElsewhere) {
  for (int host = 1; host <= 2; ++host) {
    ASSERT_TRUE(shell("mkdir -p /etc/netns/" + name(host)));
    std::ofstream("/etc/netns/" + name(host) + "/hosts")
        << "127.0.0.1 localhost\n" << (host == 1 ? "127.0.1.1 " : "10.77.0.1 ") << name(1) << "\n";
  }
  start({1, 1, 2}, "small", {{"MASTER_ADDR", name(1)}});
  expect_all_well();
}

TEST_F(Hosts, HostsMeetByIPv6) {
  for (int host = 1; host <= 2; ++host)
    ASSERT_TRUE(shell("ip -n " + name(host) + " addr add fd77::" + std::to_string(host) +
                      "/64 dev eth0 nodad"));
  start({1, 2}, "small", {{"MASTER_ADDR", "[fd77::1]"}});
  expect_all_well();
}

TEST_F(Hosts, StrangersDoNotDisturbAStart) {
  const pid_t stranger = fork();
  if (stranger == 0) {
    const std::string noise =
        "for i in $(seq 40); do for port in 29500 29501 $(ss -Hltn | awk '{print $4}' | sed 's/.*://'); do "
        "timeout 1 bash -c \"head -c 3000 /dev/urandom >/dev/tcp/10.77.0.1/$port\"; done; done >/dev/null 2>&1";
    execlp("ip", "ip", "netns", "exec", name(1).c_str(), "bash", "-c", noise.c_str(), nullptr);
    _exit(127);
  }
  usleep(200'000);
  start({1, 1, 2}, "small");
  expect_all_well();
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
}

}  // namespace
}  // namespace gangway::test
