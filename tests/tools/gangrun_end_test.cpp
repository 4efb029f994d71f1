// How gangrun ends ranks: on a request, and where the system refuses it a call.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "support/placed.h"
#include "tools/gangrun_job.h"

namespace {

using namespace gangrun_job;

TEST(GangrunEnd, ARankThatIgnoresARequestIsKilledAfterFiveSecondsAndNamed) {
  for (const char* const name : {"TERM", "HUP"}) {
    const int signal = std::string(name) == "TERM" ? SIGTERM : SIGHUP;
    Running job({"-n", "2", "--", "sh", "-c",
                 std::string("[ $RANK = 0 ] || { trap 'exit 0' ") + name +
                     "; echo ready; while :; do sleep 0.05; done; }; trap '' " + name +
                     "; echo ready; while :; do sleep 0.05; done"});
    for (const char* const words : {"[0] ready", "[1] ready"}) ASSERT_TRUE(job.says(words));
    kill(job.pid(), signal);
    ASSERT_TRUE(job.ends_unread(60));
    const Outcome o = job.finish();
    EXPECT_EQ(o.status, 128 + SIGKILL);
    EXPECT_TRUE(o.has(std::string("gangrun: rank 0 ignores SIG") + name + ": killing it\n")) << o.err;
    EXPECT_FALSE(o.has("rank 1 ignores")) << o.err;
    EXPECT_GT(o.seconds, 4.5);
  }
}

TEST(GangrunEnd, ARankThatHandlesARequestHasTheGraceOfItsOwn) {
  const std::string script =
      "trap 'sleep 6; echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done";
  Running saves({"-n", "1", "--", "sh", "-c", script});
  ASSERT_TRUE(saves.says("[0] ready"));
  kill(saves.pid(), SIGTERM);
  Outcome o = saves.finish();
  EXPECT_EQ(o.status, 75) << o.err;
  EXPECT_NE(o.out.find("[0] saved\n"), std::string::npos) << o.out;

  Running late({"-n", "1", "--end-grace", "0.5", "--", "sh", "-c", script});
  ASSERT_TRUE(late.says("[0] ready"));
  kill(late.pid(), SIGTERM);
  o = late.finish();
  EXPECT_EQ(o.status, 128 + SIGKILL);
  EXPECT_TRUE(o.has("gangrun: 1 rank has not ended 0.5 s after SIGTERM: killing it\n")) << o.err;
}

TEST(GangrunEnd, ARankThatHasJustStartedGetsASignalWhenItHandlesIt) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) {
    Running job({"-n", "1", "--", "sh", "-c",
                 "echo early; sleep 0.3; trap 'exit 75' TERM USR1 HUP; while :; do sleep 0.02; done"});
    ASSERT_TRUE(job.says("[0] early"));
    kill(job.pid(), signal);
    EXPECT_EQ(job.finish().status, 75) << strsignal(signal);
  }
}

TEST(GangrunEnd, AJobUnderNohupOutlivesSighup) {
  Running job({"-n", "1", "--", "sh", "-c", "echo ready; sleep 1; echo whole"}, false,
              [] { signal(SIGHUP, SIG_IGN); });
  ASSERT_TRUE(job.says("[0] ready"));
  kill(job.pid(), SIGHUP);
  const Outcome o = job.finish();
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out, "[0] ready\n[0] whole\n");
}

// Makes calls of these numbers fail in this process and its children, as the filter of a container does.
void deny(int error, const std::vector<long>& calls) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(99);
}

struct Denied {
  const char* name;
  int error;
  std::vector<long> calls;
};
std::vector<Denied> denials() {
  return {{"close_range of older kernels", ENOSYS, {SYS_close_range}},
          {"close_range of a filter", EPERM, {SYS_close_range}},
          {"setsid and setpgid", EPERM, {SYS_setsid, SYS_setpgid}},
          {"pidfd_open", ENOSYS, {SYS_pidfd_open}},
          {"membarrier", EPERM, {SYS_membarrier}},
          {"process_vm_readv and mbind",
           EPERM,
           {SYS_process_vm_readv, SYS_process_vm_writev, SYS_mbind, SYS_set_mempolicy, SYS_move_pages}},
          {"sched_getaffinity", EPERM, {SYS_sched_getaffinity}},
          {"set_robust_list", ENOSYS, {SYS_set_robust_list}},
          {"clone3 and openat2", ENOSYS, {SYS_clone3, SYS_openat2}}};
}

TEST(GangrunEnd, AJobEndsWhereTheSystemRefusesACall) {
#ifdef GANGWAY_TEST_SANITIZED
  GTEST_SKIP() << "a sanitizer needs calls that this test takes away";
#endif
  for (const Denied& denied : denials()) {
    const auto prepare = [&] { deny(denied.error, denied.calls); };
    Running whole({"-n", "2", placed("@build@/tests/gang/rendezvous/startup_rank"), "gang"}, false, prepare);
    ASSERT_TRUE(whole.ends_unread(60)) << denied.name << ": gangrun hangs";
    const Outcome o = whole.finish();
    EXPECT_EQ(o.status, 0) << denied.name << ": " << o.err;

    Running killed({"-n", "2", "sh", "-c", "[ $RANK = 1 ] || kill -KILL $$; exec sleep 61"}, false, prepare);
    ASSERT_TRUE(killed.ends_unread(60)) << denied.name << ": gangrun hangs after a rank was killed";
    EXPECT_EQ(killed.finish().status, 128 + SIGKILL) << denied.name;
  }
}

}  // namespace
