// Ranks as a launcher starts them: processes with an environment, that meet by a secret.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gang/descriptor.h"
#include "gang/launchers.h"
#include "gang/rendezvous/secret.h"
#include "support/placed.h"
#include "support/scratch.h"

namespace gangway {
namespace {

using test::forget_launchers;
using test::Variables;

struct Outcome {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

class Processes : public testing::Test {
 protected:
  void start(Variables variables, std::vector<std::string> arguments) {
    variables["XDG_RUNTIME_DIR"] = scratch_.path();
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (own_network_ && unshare(CLONE_NEWNET) != 0) _exit(kNoNetwork);
      dup2(ends[1], 1);
      dup2(ends[1], 2);
      forget_launchers();
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      std::string program = placed("@build@/tests/gang/rendezvous/startup_rank");
      std::vector<char*> words{program.data()};
      for (std::string& argument : arguments) words.push_back(argument.data());
      words.push_back(nullptr);
      execv(words[0], words.data());
      _exit(127);
    }
    close(ends[1]);
    children_.emplace_back(child, Descriptor(ends[0]));
  }

  void start_ranks(int size, Variables variables, const std::vector<std::string>& arguments) {
    for (int rank = 0; rank < size; ++rank) {
      Variables mine = variables;
      mine["RANK"] = std::to_string(rank);
      mine["WORLD_SIZE"] = std::to_string(size);
      start(mine, arguments);
    }
  }

  std::vector<Outcome> finish() {
    std::vector<Outcome> out;
    for (auto& [child, pipe] : children_) {
      Outcome one;
      char bytes[512];
      for (ssize_t n; (n = read(pipe.get(), bytes, sizeof bytes)) > 0;)
        one.output.append(bytes, static_cast<size_t>(n));
      int status = 0;
      waitpid(child, &status, 0);
      one.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      out.push_back(one);
    }
    children_.clear();
    return out;
  }

  void expect_all_met() {
    for (const Outcome& one : finish()) EXPECT_EQ(one.status, 0) << one.output;
  }

  std::string write_secret(const std::string& name, size_t bytes, mode_t mode) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << std::string(bytes, 's');
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }

  size_t secrets_left() const {
    const std::filesystem::path folder = scratch_.path() + "/gangway";
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }

  static constexpr int kNoNetwork = 126;
  Scratch scratch_;
  std::vector<std::pair<pid_t, Descriptor>> children_;
  bool own_network_ = false;  // the next children get a network namespace of their own
};

TEST_F(Processes, EightRanksMeetByASecretTheyMakeThemselves) {
  for (int round = 0; round < 3; ++round) {
    start_ranks(8, {{"MASTER_PORT", "29500"}}, {"meet"});
    expect_all_met();
    EXPECT_EQ(secrets_left(), 0U) << "the last one out removes the secret";
  }
}

TEST_F(Processes, ARankOfAnotherNumberOfRanksIsToldToAllAtOnce) {
  const auto begun = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank)
    start({{"RANK", std::to_string(rank)}, {"WORLD_SIZE", rank == 1 ? "4" : "3"}, {"MASTER_PORT", "29500"}},
          {"meet"});
  for (const Outcome& one : finish()) {
    EXPECT_EQ(one.status, 10 + static_cast<int>(Code::invalid_argument)) << one.output;
    EXPECT_NE(one.output.find("rank 1 was started as one of 4 ranks, rank 0 as one of 3"), std::string::npos)
        << one.output;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15));  // of 20
}

TEST_F(Processes, SeveralRootsComeFromOneEnvironment) {
  start_ranks(3, {}, {"meet", "4"});
  expect_all_met();
}

TEST_F(Processes, TwoJobsOfOneUserDoNotMeet) {
  start_ranks(2, {{"TORCHELASTIC_RUN_ID", "a"}}, {"meet"});
  start_ranks(3, {{"TORCHELASTIC_RUN_ID", "b"}}, {"meet"});
  start_ranks(2, {{"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "1"}}, {"meet"});
  expect_all_met();
}

TEST_F(Processes, AnInheritedDescriptorCarriesTheSecretForAllGenerations) {
  const int fd = memfd_create("secret", 0);
  ASSERT_EQ(write(fd, std::string(32, 's').data(), 32), 32);
  start_ranks(4, {{"GANGWAY_SECRET_FD", std::to_string(fd)}}, {"meet", "2"});
  expect_all_met();
  ASSERT_EQ(ftruncate(fd, 31), 0);
  start_ranks(2, {{"GANGWAY_SECRET_FD", std::to_string(fd)}}, {"meet"});
  for (const Outcome& one : finish()) {
    EXPECT_EQ(one.status, 10 + static_cast<int>(Code::invalid_argument));
    EXPECT_NE(one.output.find("GANGWAY_SECRET_FD: descriptor"), std::string::npos) << one.output;
  }
  close(fd);
  start_ranks(2, {{"GANGWAY_SECRET_FD", "777"}}, {"meet"});
  for (const Outcome& one : finish())
    EXPECT_NE(one.output.find("GANGWAY_SECRET_FD is 777"), std::string::npos) << one.output;
}

TEST_F(Processes, APipeCarriesTheSecretToo) {
  int ends[2][2];
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(pipe(ends[rank]), 0);
    ASSERT_EQ(write(ends[rank][1], std::string(32, 's').data(), 32), 32);
    start({{"RANK", std::to_string(rank)},
           {"WORLD_SIZE", "2"},
           {"GANGWAY_JOB", "pipe" + std::to_string(getpid())},
           {"GANGWAY_SECRET_FD", std::to_string(ends[rank][0])}},
          {"meet", "2"});
  }
  expect_all_met();
  for (const auto& pair : ends)
    for (const int fd : pair) close(fd);
}

TEST_F(Processes, RanksOfSeveralHostsMeetOverTcp) {
  // An address that is this host's but does not look like it, and one rank "on each host".
  const int port = 20000 + getpid() % 20000;
  const std::string secret = write_secret("secret", 32, 0600);
  start_ranks(3,
              {{"LOCAL_RANK", "0"},
               {"LOCAL_WORLD_SIZE", "1"},
               {"MASTER_ADDR", "2130706433"},
               {"MASTER_PORT", std::to_string(port)},
               {"GANGWAY_SECRET_FILE", secret}},
              {"meet", "2"});
  expect_all_met();
}

TEST_F(Processes, RankZeroListensOnTheNamedInterfaceAlsoWhenItIsLoopback) {
  Variables v = {{"RANK", "0"},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_RANK", "0"},
                 {"LOCAL_WORLD_SIZE", "1"},
                 {"MASTER_ADDR", "192.0.2.1"},  // of no host
                 {"MASTER_PORT", std::to_string(20002 + getpid() % 20000)},
                 {"GANGWAY_INTERFACE", "127.0.0.1"},
                 {"GANGWAY_SECRET_FILE", write_secret("secret", 32, 0600)}};
  start(v, {"meet", "2"});
  v.erase("GANGWAY_INTERFACE");
  v["RANK"] = "1";
  v["MASTER_ADDR"] = "2130706433";
  start(v, {"meet", "2"});
  expect_all_met();
}

TEST_F(Processes, ListeningOnEveryInterfaceMustBeAskedFor) {
  start({{"RANK", "0"},
         {"WORLD_SIZE", "2"},
         {"LOCAL_RANK", "0"},
         {"LOCAL_WORLD_SIZE", "1"},
         {"MASTER_ADDR", "0"},
         {"MASTER_PORT", std::to_string(20004 + getpid() % 20000)},
         {"GANGWAY_SECRET_FILE", write_secret("secret", 32, 0600)}},
        {"meet"});
  const Outcome outcome = finish()[0];
  EXPECT_EQ(outcome.status, 10 + static_cast<int>(Code::invalid_argument));
  EXPECT_NE(outcome.output.find("every interface of its host (0, port "), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("GANGWAY_INTERFACE"), std::string::npos) << outcome.output;
}

TEST_F(Processes, AnotherSecretIsRefusedInTheHandshake) {
  const std::string right = write_secret("right", 32, 0600);
  const std::string wrong = write_secret("wrong", 32, 0600);
  std::ofstream(wrong) << std::string(32, 'w');
  Variables v = {{"WORLD_SIZE", "2"},
                 {"LOCAL_RANK", "0"},
                 {"LOCAL_WORLD_SIZE", "1"},
                 {"MASTER_ADDR", "2130706433"},
                 {"GANGWAY_PORT", std::to_string(20001 + getpid() % 20000)}};
  v["RANK"] = "1";
  v["GANGWAY_SECRET_FILE"] = wrong;
  start(v, {"meet"});
  v["RANK"] = "0";
  v["GANGWAY_SECRET_FILE"] = right;
  start(v, {"meet"});
  const pid_t zero = children_[1].first;
  Outcome one;
  {
    char bytes[512];
    for (ssize_t n; (n = read(children_[0].second.get(), bytes, sizeof bytes)) > 0;)
      one.output.append(bytes, static_cast<size_t>(n));
  }
  kill(zero, SIGTERM);  // it would wait for the right rank 1
  EXPECT_EQ(finish()[0].status, 10 + static_cast<int>(Code::gang));
  EXPECT_NE(one.output.find("does not know this gang's secret"), std::string::npos) << one.output;
}

TEST_F(Processes, ASecretFileThatOthersMayReadIsRefused) {
  for (const auto& [path, word] : {std::pair(write_secret("open", 32, 0640), "mode 0640"),
                                   std::pair(write_secret("short", 31, 0600), "31 bytes"),
                                   std::pair(write_secret("long", 33, 0600), "33 bytes"),
                                   std::pair(scratch_.path() + "/absent", "cannot be opened"),
                                   std::pair(scratch_.path(), "not a regular file")}) {
    start_ranks(2, {{"GANGWAY_SECRET_FILE", path}}, {"meet"});
    for (const Outcome& one : finish()) {
      EXPECT_EQ(one.status, 10 + static_cast<int>(Code::invalid_argument));
      EXPECT_NE(one.output.find("GANGWAY_SECRET_FILE"), std::string::npos) << one.output;
      EXPECT_NE(one.output.find(word), std::string::npos) << one.output;
    }
  }
}

TEST_F(Processes, RankZerosDeathIsPeerLost) {
  start_ranks(3, {}, {"die"});
  const std::vector<Outcome> all = finish();
  EXPECT_EQ(all[0].status, 128 + SIGKILL);
  for (int rank : {1, 2}) {
    EXPECT_EQ(all[static_cast<size_t>(rank)].status, 10 + static_cast<int>(Code::peer_lost));
    EXPECT_NE(all[static_cast<size_t>(rank)].output.find("(peer 0)"), std::string::npos);
  }
}

TEST_F(Processes, TwoProcessesOfOneRankAreRefused) {
  for (int i = 0; i < 2; ++i) start({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"meet"});
  int status = 0;
  const pid_t first = waitpid(-1, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 10 + static_cast<int>(Code::io));
  for (const auto& [child, pipe] : children_)
    if (child != first) kill(child, SIGTERM);  // it waits for rank 1
  std::string output;
  for (const Outcome& one : finish()) output += one.output;
  EXPECT_NE(output.find("is another process rank 0 of this job?"), std::string::npos) << output;
}

TEST_F(Processes, TheExpectedSizeIsReadFromTheEnvironment) {
  start({{"GANGWAY_EXPECTED_SIZE", "4"}}, {"read"});
  start({{"GANGWAY_EXPECTED_SIZE", "4"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}}, {"read"});
  const std::vector<Outcome> all = finish();
  EXPECT_EQ(all[0].status, 10 + static_cast<int>(Code::invalid_argument));
  EXPECT_NE(all[0].output.find("GANGWAY_EXPECTED_SIZE is 4, but the environment gives 1 rank"),
            std::string::npos)
      << all[0].output;
  EXPECT_EQ(all[1].output, "torchrun 3/4 local 3/4 restart 0\n");
}

TEST_F(Processes, TheLivenessVariableIsCheckedOnlyWhereItHasAnEffect) {
  const Variables too_short = {{"GANGWAY_LIVENESS_MS", "49"}};
  start(too_short, {"gang"});
  EXPECT_EQ(finish()[0].status, 0) << "one rank has no peer to miss";
  start_ranks(2, too_short, {"gang", "60000"});
  expect_all_met();  // an option goes before it
  start_ranks(2, too_short, {"gang"});
  for (const Outcome& one : finish()) {
    EXPECT_EQ(one.status, 10 + static_cast<int>(Code::invalid_argument));
    EXPECT_NE(one.output.find("GANGWAY_LIVENESS_MS is 49, neither 0 (off) nor at least 50"),
              std::string::npos)
        << one.output;
  }
}

TEST_F(Processes, AFolderOfSecretsThatOthersMayEnterIsRefused) {
  ASSERT_EQ(mkdir((scratch_.path() + "/gangway").c_str(), 0755), 0);
  start_ranks(2, {}, {"meet"});
  for (const Outcome& one : finish()) {
    EXPECT_EQ(one.status, 10 + static_cast<int>(Code::invalid_argument));
    EXPECT_NE(one.output.find("folder of secrets"), std::string::npos) << one.output;
  }
}

// Each rank's parent is a shell of its own.
TEST_F(Processes, RanksThatAreStartedByHandInTwoShellsMeet) {
  for (const std::string& settings :
       {std::string(), std::string("MASTER_ADDR=localhost MASTER_PORT=29511 ")}) {
    FILE* shells[2];
    for (int r = 0; r < 2; ++r) {
      const std::string line =
          "XDG_RUNTIME_DIR=" + scratch_.path() + " " + settings + "RANK=" + std::to_string(r) +
          placed(" WORLD_SIZE=2 @build@/tests/gang/rendezvous/startup_rank gang 2>&1; echo status $?");
      shells[r] = popen(line.c_str(), "r");
    }
    for (FILE* const shell : shells) {
      char words[512] = "";
      const size_t n = fread(words, 1, sizeof words - 1, shell);
      EXPECT_EQ(std::string(words, n), "status 0\n");
      pclose(shell);
    }
  }
}

TEST_F(Processes, AFolderThatAnotherUserMadeBeforehandIsPassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  const std::string taken = scratch_.path() + "/taken", file = scratch_.path() + "/file";
  const std::string own = scratch_.path() + "/own";
  ASSERT_EQ(mkdir(taken.c_str(), 0700), 0);
  ASSERT_EQ(chown(taken.c_str(), 12345, 12345), 0);
  std::ofstream(file) << "no folder";
  EXPECT_EQ(usable_folder({taken, file, own}), own);
  EXPECT_EQ(usable_folder({taken, own}), own) << "also when it is there";
  try {
    usable_folder({taken, file});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    for (const std::string& words : {taken + " belongs to user 12345", file + " is no folder",
                                     std::string("set GANGWAY_SECRET_FILE on every rank")})
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  }
}

// As containers do that share /tmp: abstract sockets end at a network namespace.
TEST_F(Processes, ARankOfAnotherNetworkIsToldAndDoesNotDisturbAJobOfTheSameName) {
  own_network_ = true;
  start({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29512"}}, {"gang"});
  own_network_ = false;
  for (const char* rank : {"0", "1"})
    start({{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29512"}}, {"gang"});
  const std::vector<Outcome> all = finish();
  if (all[0].status == kNoNetwork) GTEST_SKIP() << "no network namespace can be made";
  EXPECT_EQ(all[0].status, 10 + static_cast<int>(Code::timeout)) << all[0].output;
  EXPECT_NE(all[0].output.find("network namespaces of their own"), std::string::npos) << all[0].output;
  EXPECT_EQ(all[1].status, 0) << all[1].output;
  EXPECT_EQ(all[2].status, 0) << all[2].output;
}

TEST_F(Processes, AStaleSecretIsNotUsed) {
  const std::string folder = scratch_.path();
  const pid_t child = fork();  // shared_secret holds its lock until the process ends
  if (child == 0) {
    const Secret first = shared_secret(folder, "job", Deadline::after_ms(5000));
    std::ofstream(folder + "/first").write(reinterpret_cast<const char*>(first.data()), 32);
    _exit(0);  // without removing it, like a killed rank
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  const Secret second = shared_secret(folder, "job", Deadline::after_ms(5000));
  std::ifstream file(folder + "/first");
  const std::string first((std::istreambuf_iterator<char>(file)), {});
  ASSERT_EQ(first.size(), 32U);
  EXPECT_NE(first, std::string(second.begin(), second.end()));
  EXPECT_EQ(shared_secret(folder, "job", Deadline::after_ms(5000)), second)
      << "kept for the life of the process";
}

}  // namespace
}  // namespace gangway
