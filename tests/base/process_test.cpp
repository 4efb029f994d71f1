#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gangway {
namespace {

constexpr int kParent = 4, kStart = 22, kExitCode = 52;

// A child under a name of its own, ended by `signal`, but not yet reaped.
pid_t ended_child(const char* name, int signal) {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_NAME, name);
    raise(signal);
    _exit(0);
  }
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);
  return pid;
}

TEST(ProcessStat, FieldsAreThoseOfTheProcessWhateverItsName) {
  EXPECT_EQ(process_stat(getpid(), kParent), getppid());
  EXPECT_GT(process_stat(getpid(), kStart).value_or(0), 0);
  for (const char* name : {"plain", "a) R 7 (b", ") ) )", "\n) 1 1\n"}) {
    const pid_t child = ended_child(name, SIGKILL);
    EXPECT_EQ(process_stat(child, kParent), getpid()) << name;
    EXPECT_GE(process_stat(child, kStart), process_stat(getpid(), kStart)) << name;
    EXPECT_EQ(process_stat(child, kExitCode), SIGKILL) << name;
    waitpid(child, nullptr, 0);
    EXPECT_EQ(process_stat(child, kParent), std::nullopt) << name;
  }
}

TEST(ProcessStat, AFieldThatIsNotThereIsNone) { EXPECT_EQ(process_stat(getpid(), 1000), std::nullopt); }

}  // namespace
}  // namespace gangway
