// Several hosts for tests, which are network namespaces of this machine, and the ranks on them. A test is
// skipped where these cannot be made.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gang/launchers.h"
#include "support/placed.h"
#include "support/scratch.h"

namespace gangway::test {

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns whether the command ended with 0. What it says goes to `output`.
inline bool shell(const std::string& command, const std::string& output = "/dev/null") {
  return std::system((command + " >" + output + " 2>&1").c_str()) == 0;
}

struct Ended {
  int status = -1;  // exit status, or 128 + signal
  std::string output;
};

class OnHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    is_up_ = true;
    const std::string why = scratch_.path() + "/up";
    if (!shell(placed("bash @source@/tests/gang/mpi/hosts.sh up 3 ") + prefix(), why))
      GTEST_SKIP() << "no network namespaces here: " << text_of_file(why);
    secret_ = write_secret("secret", 's');
  }
  void TearDown() override {
    if (!is_up_) return;
    shell(placed("bash @source@/tests/gang/mpi/hosts.sh down ") + prefix());
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

  // The program of a rank.
  virtual std::string program() const = 0;

  // Starts one rank on each host of the list, in rank order. `what` is the program's argument.
  void start(const std::vector<int>& hosts, const std::string& what, const Variables& more = {}) {
    for (size_t r = 0; r < hosts.size(); ++r) start_rank(static_cast<int>(r), hosts, what, more);
  }
  void start_rank(int rank, const std::vector<int>& hosts, const std::string& what, const Variables& more) {
    const std::string file = output_of(rank);
    const pid_t child = fork();
    if (child == 0) {
      alarm(200);  // no rank outlives a broken test for long
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
      execlp("ip", "ip", "netns", "exec", host.c_str(), program().c_str(), what.c_str(), nullptr);
      _exit(127);
    }
    children_.push_back(child);
  }
  std::string output_of(int rank) const { return scratch_.path() + "/out." + std::to_string(rank); }

  std::vector<Ended> finish() {
    std::vector<Ended> all;
    for (size_t r = 0; r < children_.size(); ++r) {
      int status = 0;
      waitpid(children_[r], &status, 0);
      all.push_back({WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                     text_of_file(output_of(static_cast<int>(r)))});
    }
    children_.clear();
    return all;
  }
  const std::string prefix_ = "gwn" + std::to_string(getpid()) + "h";
  Scratch scratch_;
  std::string secret_;
  std::vector<pid_t> children_;
  bool is_up_ = false;
};

}  // namespace gangway::test
