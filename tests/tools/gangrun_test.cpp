// gangrun from outside: a shell in every rank, what comes out, and how it ends.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "base/sanitized.h"
#include "support/placed.h"
#include "tools/gangrun_job.h"

namespace {

using namespace gangrun_job;

TEST(Gangrun, SetsRankAndWorldSizeForEachRank) {
  const Outcome o =
      shell(3,
            "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE restart $GANGWAY_RESTART_COUNT"
            " at $MASTER_ADDR; test $MASTER_PORT -gt 0 && test -n \"$GANGWAY_JOB\"");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(sorted_lines(o.out),
            (Lines{"[0] 0/3 local 0/3 restart 0 at 127.0.0.1", "[1] 1/3 local 1/3 restart 0 at 127.0.0.1",
                   "[2] 2/3 local 2/3 restart 0 at 127.0.0.1"}));
  EXPECT_EQ(o.err, "");
}

TEST(Gangrun, EightRanksMeetThroughTheirStore) {
  const Outcome o = gangrun({"-n", "8", placed("@build@/tests/gang/rendezvous/startup_rank"), "meet", "2"});
  EXPECT_EQ(o.status, 0) << o.err;
}

TEST(Gangrun, TheSecretIsInNoArgumentOrVariableAndIsClosedElsewhere) {
  const Outcome o =
      shell(2, "test $(cat /proc/self/fd/$GANGWAY_SECRET_FD | wc -c) = 32 && ls /proc/self/fd | wc -l");
  EXPECT_EQ(o.status, 0) << o.err;
  // What this test hands down itself, and the secret.
  FILE* const bare = popen("ls /proc/self/fd | wc -l", "r");
  int descriptors = 0;
  ASSERT_EQ(fscanf(bare, "%d", &descriptors), 1);
  pclose(bare);
  const std::string expected = std::to_string(descriptors + 1);
  EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] " + expected, "[1] " + expected}));
}

TEST(Gangrun, KeepsStreamsApartAndEndsPartialLines) {
  const Outcome o = shell(2, "printf 'one\\ntwo'; printf 'three\\n\\nfour' >&2");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] one", "[0] two", "[1] one", "[1] two"}));
  EXPECT_EQ(sorted_lines(o.err), (Lines{"[0] ", "[0] four", "[0] three", "[1] ", "[1] four", "[1] three"}));
}

TEST(Gangrun, LinesOfTwoRanksNeverMix) {
  const Outcome o =
      shell(4, "i=0; while [ $i -lt 2000 ]; do echo line $i of $RANK with a tail; i=$((i+1)); done");
  EXPECT_EQ(o.status, 0);
  const Lines lines = sorted_lines(o.out);
  ASSERT_EQ(lines.size(), 8000U);
  Lines expected;
  for (int rank = 0; rank < 4; ++rank)
    for (int i = 0; i < 2000; ++i)
      expected.push_back("[" + std::to_string(rank) + "] line " + std::to_string(i) + " of " +
                         std::to_string(rank) + " with a tail");
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(lines, expected);
}

TEST(Gangrun, WithoutPrefixOutputIsAsItCame) {
  const Outcome o = shell(1, "printf 'a\\rb'", {"--no-prefix"});
  EXPECT_EQ(o.out, "a\rb");
  EXPECT_EQ(shell(1, "printf 'a\\rb\\n'").out, "[0] a\rb\n") << "no terminal: nothing is left out";
}

TEST(Gangrun, OnATerminalRankZeroRedrawsItsLine) {
  const auto terminal = [](const std::string& script) {
    return Running({"-n", "2", "--", "sh", "-c", script}, true).finish().out;
  };
  const std::string first = terminal("[ $RANK = 1 ] || printf 'step 1\\rstep 2\\r'; sleep 0.1");
  EXPECT_EQ(first, "[0] step 1\r\033[K[0] step 2\r\n");
  EXPECT_EQ(terminal("[ $RANK = 0 ] || printf 'step 1\\rstep 2\\n'"), "[1] step 2\r\n")
      << "others show the last state";
  const Notes notes;
  const std::string mixed = terminal("if [ $RANK = 0 ]; then printf '\\rstep 1'; " + notes.tell("step") +
                                     "; " + notes.wait_for("hello") + "; else " + notes.wait_for("step") +
                                     "; sleep 0.1; echo hello; sleep 0.1; " + notes.tell("hello") + "; fi");
  EXPECT_EQ(mixed, "[0] \r\033[K[0] step 1\r\033[K[1] hello\r\n\r\n");
}

TEST(Gangrun, OneFailureEndsAllAndIsNamed) {
  const Notes notes;
  const std::string fails = notes.wait_for("ready.0") + "; " + notes.wait_for("ready.1") + "; " +
                            notes.wait_for("ready.3") + "; exit 7";
  const std::string asked = notes.tell("asked.$RANK") + "; trap - TERM; kill -TERM $$";
  const Outcome o = shell(4, "[ $RANK != 2 ] || { " + fails + "; }; trap '" + asked + "' TERM; " +
                                 notes.tell("ready.$RANK") + "; sleep 60 & wait");
  EXPECT_EQ(o.status, 7);
  for (const char* const note : {"asked.0", "asked.1", "asked.3"})
    EXPECT_TRUE(notes.has(note)) << "a request, which is heeded, and no kill";
  EXPECT_TRUE(o.has("gangrun: rank 2 (process ")) << o.err;
  EXPECT_TRUE(o.has(") exited with code 7; ending the other 3 ranks in 2 s\n")) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1)
      << "what our own SIGTERM did is no news: " << o.err;
}

TEST(Gangrun, ASignalIsNamedAndIsTheStatus) {
  const Outcome o = shell(3, "[ $RANK != 1 ] || kill -SEGV $$; sleep 60");
  EXPECT_EQ(o.status, 128 + SIGSEGV);
  EXPECT_TRUE(o.has("gangrun: rank 1 (process ")) << o.err;
  EXPECT_TRUE(o.has("was killed by signal 11 (SIGSEGV, Segmentation fault)")) << o.err;
}

TEST(Gangrun, AKilledRankIsTheCauseThoughAnotherRankEndedFirst) {
  const std::string file = testing::TempDir() + "gangrun_cause_" + std::to_string(getpid());
  const Outcome o = shell(2, "if [ $RANK = 1 ]; then while [ ! -e " + file +
                                 " ]; do :; done; kill -KILL $$; fi; touch " + file + "; exit 1");
  std::remove(file.c_str());
  EXPECT_EQ(o.status, 128 + SIGKILL) << o.err;
  EXPECT_TRUE(o.has("gangrun: rank 1 (process ")) << o.err;
}

TEST(Gangrun, RanksGoOnWhenNobodyReads) {
  const std::string file = testing::TempDir() + "gangrun_unread_" + std::to_string(getpid());
  Running job(
      {"-n", "2", "--", "sh", "-c",
       "echo ready; i=0; while [ $i -lt 3000 ]; do echo some words that nobody reads; i=$((i+1)); done; "
       "echo done >> " +
           file});
  ASSERT_TRUE(job.says("ready"));
  job.stop_reading();
  EXPECT_EQ(job.finish().status, 0);
  std::ifstream in(file);
  std::ostringstream words;
  words << in.rdbuf();
  std::remove(file.c_str());
  EXPECT_EQ(words.str(), "done\ndone\n");
}

TEST(Gangrun, ARequestToEndIsFollowedWhileNobodyReadsTheOutput) {
  Running job({"-n", "2", "--", "sh", "-c", "while :; do echo words; done"});
  ASSERT_TRUE(job.says("[0] words"));
  ASSERT_TRUE(job.says("[1] words"));
  EXPECT_FALSE(job.ends_unread(1));
  kill(job.pid(), SIGTERM);
  EXPECT_TRUE(job.ends_unread(20));
  EXPECT_EQ(job.finish().status, 128 + SIGTERM);
}

TEST(Gangrun, AStartThatFailsHalfwayLeavesNothingBehind) {
#ifdef GANGWAY_TEST_SANITIZED
  GTEST_SKIP() << "a sanitizer needs the descriptors that this test takes away";
#endif
  const std::string file = testing::TempDir() + "gangrun_start_" + std::to_string(getpid());
  const std::string script =
      placed("ulimit -n 40; exec @build@/impl/tools/gangrun -n 64 -- sh -c 'sleep 61 & echo $! >> ") + file +
      "; wait'";
  const Outcome o = Running({"-n", "1", "--", "sh", "-c", script}).finish();
  EXPECT_NE(o.status, 0);
  EXPECT_TRUE(o.has("pipe")) << o.err;
  std::ifstream in(file);
  for (int pid = 0; in >> pid;) EXPECT_FALSE(alive(pid)) << pid;
  std::remove(file.c_str());
}

TEST(Gangrun, ARankThatIgnoresTheRequestToEndIsKilledAfterFiveSeconds) {
  const Notes notes;
  const Outcome o =
      shell(2, "if [ $RANK = 0 ]; then " + notes.wait_for("trapped") + "; exit 3; fi; trap '" +
                   notes.tell("asked") + "' TERM; echo $$; " + notes.tell("trapped") + "; " +
                   notes.wait_for("asked") + "; " + notes.tell("on") + "; while :; do sleep 0.05; done");
  EXPECT_EQ(o.status, 3);
  EXPECT_TRUE(notes.has("on")) << "it went on after the request";
  EXPECT_GT(o.seconds, 4.5) << "a busy machine makes it longer only";
  ASSERT_EQ(o.out.substr(0, 4), "[1] ") << o.out;
  EXPECT_FALSE(alive(std::stoi(o.out.substr(4)))) << "it does not end by itself";
}

TEST(Gangrun, ProcessesThatARankStartedEndWithTheRank) {
  const Outcome o = shell(2, "sleep 61 & echo $!; [ $RANK = 0 ] || { sleep 0.2; exit 1; }; wait");
  EXPECT_EQ(o.status, 1);
  for (const std::string& line : sorted_lines(o.out)) EXPECT_FALSE(alive(std::stoi(line.substr(4)))) << line;
}

TEST(Gangrun, TheWholeJobIsStartedAgain) {
  const Notes notes;
  const Outcome o = shell(2,
                          "echo $GANGWAY_RESTART_COUNT; " + notes.tell("$GANGWAY_RESTART_COUNT.$RANK") +
                              "; " + notes.wait_for("$GANGWAY_RESTART_COUNT.$((1 - RANK))") +
                              "; [ $GANGWAY_RESTART_COUNT = 2 ] || exit 4",
                          {"--max-restarts", "3"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] 0", "[0] 1", "[0] 2", "[1] 0", "[1] 1", "[1] 2"}));
  EXPECT_TRUE(o.has("gangrun: restart 1 of 3\n")) << o.err;
  EXPECT_TRUE(o.has("gangrun: restart 2 of 3\n")) << o.err;
  EXPECT_EQ(shell(1, "exit 9", {"--max-restarts", "2"}).status, 9);
}

TEST(Gangrun, RestartedRanksMeet) {
  const Outcome o = shell(4,
                          placed("[ $GANGWAY_RESTART_COUNT = 0 ] && [ $RANK = 3 ] && kill -KILL $$; exec "
                                 "@build@/tests/gang/rendezvous/startup_rank meet"),
                          {"--max-restarts", "1"});
  EXPECT_EQ(o.status, 0) << o.err;
}

TEST(Gangrun, ForwardsSignalsToEveryRank) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGHUP, SIGINT, SIGTERM}) {
    Running job(
        {"-n", "3", "--", "sh", "-c",
         "trap 'echo got it; exit 0' USR1 USR2 HUP INT TERM; echo ready; while :; do sleep 0.02; done"});
    for (const char* const words : {"[0] ready", "[1] ready", "[2] ready"}) ASSERT_TRUE(job.says(words));
    kill(job.pid(), signal);
    const Outcome o = job.finish();
    EXPECT_EQ(o.status, 0) << o.err;
    for (const char* const words : {"[0] got it", "[1] got it", "[2] got it"})
      EXPECT_NE(o.out.find(words), std::string::npos) << signal << ": " << o.out;
  }
}

TEST(Gangrun, ARequestToEndIsNoReasonToStartAgain) {
  Running job({"-n", "2", "--max-restarts", "5", "--", "sh", "-c", "echo ready; sleep 60"});
  ASSERT_TRUE(job.says("[0] ready"));
  ASSERT_TRUE(job.says("[1] ready"));
  kill(job.pid(), SIGTERM);
  const Outcome o = job.finish();
  EXPECT_EQ(o.status, 128 + SIGTERM);
  EXPECT_FALSE(o.has("restart")) << o.err;
}

TEST(Gangrun, SlurmsWarningIsNoReasonToStartAgain) {
  Running job({"-n", "2", "--max-restarts", "5", "--", "sh", "-c",
               "trap 'exit 3' USR1; echo ready; while :; do sleep 0.02; done"});
  ASSERT_TRUE(job.says("[0] ready"));
  ASSERT_TRUE(job.says("[1] ready"));
  kill(job.pid(), SIGUSR1);
  const Outcome o = job.finish();
  EXPECT_EQ(o.status, 3);
  EXPECT_FALSE(o.has("restart")) << o.err;
}

TEST(Gangrun, ARankThatAsksToBeStartedAgainEndsTheJobWithItsStatus) {
  const Outcome o = shell(2, "exit 75", {"--max-restarts", "5"});
  EXPECT_EQ(o.status, 75);
  EXPECT_TRUE(o.has("exited with code 75 (start it again to continue)")) << o.err;
  EXPECT_FALSE(o.has("restart 1")) << o.err;
}

TEST(Gangrun, WrongSettingsAreNoReasonToStartAgain) {
  const Outcome o = shell(2, "exit 64", {"--max-restarts", "5"});
  EXPECT_EQ(o.status, 64);
  EXPECT_FALSE(o.has("restart 1")) << o.err;
}

TEST(Gangrun, RanksDieWithTheLauncher) {
  Running job({"-n", "3", "--", "sh", "-c", "echo pid $$; exec sleep 60"});
  for (const char* const words : {"[0] pid ", "[1] pid ", "[2] pid "}) ASSERT_TRUE(job.says(words));
  kill(job.pid(), SIGKILL);
  const Outcome o = job.finish();
  EXPECT_EQ(o.status, 128 + SIGKILL);
  for (const std::string& line : sorted_lines(o.out)) EXPECT_FALSE(alive(std::stoi(line.substr(8)))) << line;
}

TEST(Gangrun, ProcessesThatARankStartedDieWithTheLauncher) {
  Running job({"-n", "2", "--", "sh", "-c", "sleep 61 & echo pid $!; wait"});
  for (const char* const words : {"[0] pid ", "[1] pid "}) ASSERT_TRUE(job.says(words));
  kill(job.pid(), SIGKILL);
  const Outcome o = job.finish();
  EXPECT_LT(o.seconds, 30) << "nobody holds the output open";
  for (const std::string& line : sorted_lines(o.out)) EXPECT_FALSE(alive(std::stoi(line.substr(8)))) << line;
}

TEST(Gangrun, TheOtherRanksHaveAGracePeriodToReportTheirErrors) {
  const std::string script = "[ $RANK != 0 ] || exit 3; sleep 0.7; echo why; sleep 60";
  Outcome o = shell(2, script);
  EXPECT_EQ(o.status, 3);
  EXPECT_EQ(o.out, "[1] why\n");
  o = shell(2, script, {"--grace", "0"});
  EXPECT_EQ(o.status, 3);
  EXPECT_EQ(o.out, "");
  EXPECT_TRUE(o.has("exited with code 3; ending the other 1 rank\n")) << o.err;
}

TEST(Gangrun, AJobWhoseOtherRanksEndByThemselvesDoesNotWaitForTheGrace) {
  const Outcome o = shell(3, "[ $RANK != 0 ] || exit 3; sleep 0.3; echo why; exit 4", {"--grace", "60"});
  EXPECT_EQ(o.status, 3) << o.err;
  EXPECT_EQ(sorted_lines(o.out), (Lines{"[1] why", "[2] why"}));
  EXPECT_LT(o.seconds, 30);
}

TEST(Gangrun, SeveralProgramsAreOfOneGang) {
  Outcome o = gangrun({"-n", "2", "sh", "-c", "echo a $RANK of $WORLD_SIZE", ":", "-n", "1", "--", "sh", "-c",
                       "echo b $LOCAL_RANK of $LOCAL_WORLD_SIZE", ":", "--ranks=1", "echo", "c", ":", "d"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] a 0 of 4", "[1] a 1 of 4", "[2] b 2 of 4", "[3] c : d"}));
  o = gangrun({"-n", "2", placed("@build@/tests/gang/rendezvous/startup_rank"), "gang", ":", "-n", "2",
               placed("@build@/tests/gang/rendezvous/startup_rank"), "gang"});
  EXPECT_EQ(o.status, 0) << o.err;
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"-n", "1", "true", ":", "-n", "1"},
                                              {"-n", "1", "true", ":", "-n", "0", "true"},
                                              {"-n", "4000", "true", ":", "-n", "97", "true"}})
    EXPECT_EQ(gangrun(bad).status, 2);
}

TEST(Gangrun, EndsAJobThatRunsTooLong) {
  const Outcome o = shell(2, "sleep 60", {"--timeout", "0.3"});
  EXPECT_EQ(o.status, 124);
  EXPECT_EQ(o.err, "gangrun: the job ran longer than 0.3 s; ending all ranks\n");
}

TEST(Gangrun, RefusesWhatItCannotRun) {
  Outcome o = gangrun({"-n", "3", "/does/not/exist"});
  EXPECT_EQ(o.status, 127);
  EXPECT_EQ(o.err, "gangrun: cannot run /does/not/exist: No such file or directory\n");
  EXPECT_EQ(gangrun({"-n", "2", "/etc/passwd"}).status, 126);
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{}, {"-n", "0", "true"}, {"-n", "two", "true"}, {"-n", "2"}, {"true"}}) {
    o = gangrun(bad);
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_NE(o.err, "");
  }
}

TEST(Gangrun, ArgumentsOfTheProgramAreItsOwn) {
  EXPECT_EQ(gangrun({"-n", "1", "echo", "-n", "7", "--timeout", "x"}).out, "[0] 7 --timeout x\n");
  EXPECT_EQ(gangrun({"-n", "1", "--", "echo", "--", "-n"}).out, "[0] -- -n\n");
}

}  // namespace
