// What gangrun starts, and how many times: scripts and modules of Python, the names that torchrun's options
// have, and options that it does not know.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/placed.h"
#include "support/scratch.h"
#include "tools/gangrun_job.h"

namespace {

using namespace gangrun_job;
namespace fs = std::filesystem;

// A folder with an interpreter that prints its arguments, and with a script.
class GangrunCommand : public testing::Test {
 protected:
  GangrunCommand() {
    fs::create_directories(folder_ + "/venv/bin");
    write("fake", "#!/bin/sh\necho fake \"$@\"\n");
    write("venv/bin/python3", "#!/bin/sh\necho venv \"$@\"\n");
    write("train.py", "#!/bin/sh\necho shell \"$@\"\n");
    unsetenv("VIRTUAL_ENV");
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    fs::permissions(folder_ + "/" + name, fs::perms::owner_all);
  }

  const gangway::Scratch scratch_;
  const std::string folder_ = scratch_.path();
};

std::string out_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "--no-prefix");
  return gangrun(arguments).out;
}

TEST_F(GangrunCommand, AScriptAndAModuleRunUnderTheInterpreter) {
  const std::string fake = folder_ + "/fake", script = folder_ + "/train.py";
  EXPECT_EQ(out_of({"-n", "1", "--python", fake, script, "-n", "7"}), "fake -u " + script + " -n 7\n");
  EXPECT_EQ(out_of({"-n", "1", "--python", fake, "-m", "a.b", "--lr", "3"}), "fake -u -m a.b --lr 3\n");
  EXPECT_EQ(out_of({"-n", "1", "--python", fake, "--", "python", "x"}), "fake x\n");
  EXPECT_EQ(out_of({"-n", "1", "--python", fake, "python3", "x"}), "fake x\n");
  EXPECT_EQ(out_of({"-n", "1", "--python", fake, "--no-python", script, "x"}), "shell x\n");
  EXPECT_EQ(out_of({"-n", "1", "--python", fake, "echo", "train.py"}), "train.py\n");
}

TEST_F(GangrunCommand, EachProgramOfAGangHasItsOwnWay) {
  const std::string fake = folder_ + "/fake", script = folder_ + "/train.py";
  const Outcome o = gangrun({"-n", "1", "--python", fake, script, ":", "--nproc-per-node", "1", "-m", "b",
                             ":", "-n", "1", "--no-python", script});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] fake -u " + script, "[1] fake -u -m b", "[2] shell"}));
}

TEST_F(GangrunCommand, WithoutAnInterpreterThatOfTheVirtualEnvironmentRuns) {
  setenv("VIRTUAL_ENV", (folder_ + "/venv").c_str(), 1);
  EXPECT_EQ(out_of({"-n", "1", folder_ + "/train.py"}), "venv -u " + folder_ + "/train.py\n");
  setenv("VIRTUAL_ENV", (folder_ + "/gone").c_str(), 1);
  write("train.py", "print('python3 of the path')\n");
  EXPECT_EQ(out_of({"-n", "1", folder_ + "/train.py"}), "python3 of the path\n");
  unsetenv("VIRTUAL_ENV");
}

TEST_F(GangrunCommand, AScriptThatIsMissingIsNamed) {
  const Outcome o = gangrun({"-n", "2", "no/such.py"});
  EXPECT_EQ(o.status, 127);
  EXPECT_EQ(o.err, "gangrun: cannot run no/such.py: No such file or directory\n");
}

// An agent that runs the words for a host on this one, as ssh does on another.
class GangrunHosts : public GangrunCommand {
 protected:
  GangrunHosts() { write("agent", "#!/bin/sh\nshift; exec sh -c \"$*\"\n"); }
  std::vector<std::string> with_agent(std::vector<std::string> options, const std::string& script) const {
    options.insert(options.end(), {"--agent", folder_ + "/agent", "--", "sh", "-c", script});
    return options;
  }
};

TEST_F(GangrunHosts, EachHostGetsItsRanksInOrderAndAllTheSameSecret) {
  const std::string script =
      "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE at $MASTER_ADDR \"it's\"; "
      "cksum </proc/self/fd/$GANGWAY_SECRET_FD >" +
      folder_ + "/secret.$RANK";
  write("hosts", "# two\none slots=2\n\n[fd77::1]:1\n");
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{"-n", "2", "--hosts", "one,[fd77::1]:1"},
        {"--hostfile", folder_ + "/hosts"}}) {
    const Outcome o = gangrun(with_agent(hosts, script));
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] 0/3 local 0/2 at one it's", "[1] 1/3 local 1/2 at one it's",
                                          "[2] 2/3 local 0/1 at one it's"}));
    const auto secret = [&](int rank) {
      std::ifstream file(folder_ + "/secret." + std::to_string(rank));
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_NE(secret(0).find(" 32"), std::string::npos) << secret(0);
    EXPECT_EQ(secret(1), secret(0));
    EXPECT_EQ(secret(2), secret(0));
  }
}

TEST_F(GangrunHosts, TheStatusIsThatOfTheRankThatFailedAndItsHostIsNamed) {
  const Outcome o =
      gangrun(with_agent({"-n", "1", "--hosts", "one,two"}, "[ $RANK = 0 ] && exec sleep 100; exit 7"));
  EXPECT_EQ(o.status, 7) << o.err;
  EXPECT_TRUE(o.has("rank 1 (process")) << o.err;
  EXPECT_TRUE(o.has("host two")) << o.err;
}

// ssh dies of a signal at once, and its status would be taken for that of the ranks, which still save.
TEST_F(GangrunHosts, ARequestToEndReachesRanksBehindAnAgentThatWouldDieOfIt) {
  write("agent", "#!/bin/sh\nshift; exec 3<&0; setsid sh -c \"$*\" <&3 & wait $!; exit $?\n");
  const std::string script =
      "trap 'sleep 0.5; echo saved; exit 75' TERM; echo ready; while :; do sleep 0.02; done";
  Running job(with_agent({"-n", "1", "--hosts", "one,two"}, script));
  for (const char* const words : {"[0] ready", "[1] ready"}) ASSERT_TRUE(job.says(words));
  kill(job.pid(), SIGTERM);
  const Outcome o = job.finish();
  EXPECT_EQ(o.status, 75) << o.err;
  for (const char* const words : {"[0] saved", "[1] saved"})
    EXPECT_NE(o.out.find(words), std::string::npos) << o.out;
}

TEST_F(GangrunHosts, AListThatIsWrongIsRefused) {
  for (const auto& [list, words] : std::vector<std::pair<const char*, const char*>>{
           {"a,b,a", "host a stands twice"},
           {"a:0", "\"0\" is not a number of ranks from 1 to 4096"},
           {"a:2x", "\"2x\" is not a number of ranks"},
           {"a:", "\"\" is not a number of ranks"},
           {"a,,b", "\"\" is not the name of a host"},
           {"-a", "\"-a\" is not the name of a host"},
           {"[fd77::1", "is not a number of ranks"},
           {"[fd77::1]x:2", "\"[fd77::1]x:2\" is not \"[ADDRESS]\""},
           {"a:4096,b:1", "4097 ranks in all"}}) {
    const Outcome o = gangrun(with_agent({"-n", "1", std::string("--hosts=") + list}, "echo started"));
    EXPECT_NE(o.status, 0) << list;
    EXPECT_TRUE(o.has(words)) << list << ": " << o.err;
    EXPECT_EQ(o.out, "") << list;
  }
}

TEST(GangrunOptions, TheCheckOfAGangMeasuresEveryPair) {
  const std::string out = out_of({"-n", "3", "--no-prefix", placed("@build@/impl/tools/gw-info"), "--check"});
  for (const char* const line : {"engine host\n", "  rank 2 on ", "an all-reduce of 4 MiB: ",
                                 "  ranks 0 and 1: ", "  ranks 0 and 2: ", "  ranks 1 and 2: "})
    EXPECT_NE(out.find(line), std::string::npos) << line << " in " << out;
}

TEST(GangrunOptions, TorchrunsNamesWork) {
  for (const std::vector<std::string>& count :
       {std::vector<std::string>{"--ranks=2"}, {"--nproc-per-node", "2"}, {"--nproc_per_node=2"}}) {
    std::vector<std::string> all = count;
    all.insert(all.end(),
               {"--standalone", "--nnodes", "1", "--max_restarts", "1", "sh", "-c", "echo $WORLD_SIZE"});
    const Outcome o = gangrun(all);
    EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(sorted_lines(o.out), (Lines{"[0] 2", "[1] 2"}));
  }
}

TEST(GangrunOptions, AnOptionThatIsUnknownIsNamedAndNeverRun) {
  for (const char* const option :
       {"--nnodes=2", "--rdzv-backend", "--log-dir", "--nproc", "-k", "--ranksx=1"}) {
    const Outcome o = gangrun({"-n", "2", option, "2", "true"});
    EXPECT_EQ(o.status, 2) << option;
    EXPECT_TRUE(o.has(std::string(option).substr(0, std::string(option).find('='))))
        << option << ": " << o.err;
    EXPECT_FALSE(o.has("cannot run")) << o.err;
  }
  EXPECT_TRUE(gangrun({"-n", "2", "--nnodes", "2", "true"})
                  .has("--nnodes 2: gangrun starts ranks on this host, or on those of --hosts"));
  const Outcome o = gangrun({"-n", "1", "--", "--no-such-program"});
  EXPECT_EQ(o.status, 127) << "behind -- it is a program: " << o.err;
}

TEST(GangrunOptions, TheNumberOfRanksMayFollowTheHost) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  setenv("CUDA_VISIBLE_DEVICES", "0,3,5", 1);
  const auto size = [](const char* count) { return out_of({"-n", count, "sh", "-c", "echo $WORLD_SIZE"}); };
  EXPECT_EQ(size("cpu"), "1\n");
  EXPECT_EQ(size("auto"), "3\n3\n3\n");
  EXPECT_EQ(size("gpu"), "3\n3\n3\n");
  for (const char* const none : {"", "-1"}) {
    setenv("CUDA_VISIBLE_DEVICES", none, 1);
    EXPECT_EQ(size("auto"), "1\n");
    const Outcome o = gangrun({"-n", "gpu", "true"});
    EXPECT_EQ(o.status, 2);
    EXPECT_TRUE(o.has("this host has no NVIDIA GPU")) << o.err;
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_TRUE(
      gangrun({"-n", "2x", "true"}).has("the number of ranks is \"2x\", not 1 to 4096, auto, cpu or gpu"));
}

}  // namespace
