// What is read from a launcher's environment.
#include "gang/rendezvous/startup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gang/launchers.h"

namespace gangway {
namespace {

using test::forget_launchers;
using test::Variables;

class Startup : public testing::Test {
 protected:
  void SetUp() override { forget_launchers(); }
  void TearDown() override { forget_launchers(); }

  static Environment read(const Variables& variables) {
    forget_launchers();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return read_environment();
  }

  static std::string refusal(const Variables& variables) {
    try {
      read(variables);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.message();
    }
    return "no refusal";
  }
};

std::string place(const Environment& e) {
  return text(e.launcher, " ", e.rank, "/", e.size, " local ", e.local_rank, "/", e.local_size);
}

TEST_F(Startup, NothingSetIsOneRank) {
  const Environment e = read({});
  EXPECT_EQ(place(e), "none 0/1 local 0/1");
  EXPECT_EQ(place(read({{"SLURM_NTASKS", "4"}})), "none 0/1 local 0/1") << "an allocation's shell is no task";
  EXPECT_EQ(place(read({{"RANK", ""}, {"WORLD_SIZE", ""}})), "none 0/1 local 0/1") << "empty is not set";
  connect(e, 0, Deadline::after_ms(1000))->put("key", "one rank needs no server");
}

TEST_F(Startup, EveryLauncherIsUnderstood) {
  EXPECT_EQ(place(read({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}})),
            "torchrun 5/8 local 1/4");
  EXPECT_EQ(place(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}})), "torchrun 1/2 local 1/2");
  EXPECT_EQ(place(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node7"}})),
            "torchrun 1/2 local 0/1");
  const Variables script = {
      {"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(place(read(script)), "none 0/1 local 0/1") << "a batch script is no task";
  Variables interactive = script;
  interactive["SLURM_STEP_ID"] = "4294967290";
  interactive["SLURM_STEP_NUM_TASKS"] = interactive["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(place(read(interactive)), "slurm 0/1 local 0/1") << "the step has fewer tasks than the job";
  EXPECT_EQ(place(read({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "3"}})),
            "slurm 3/4 local 3/4");
  EXPECT_EQ(place(read({{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})),
            "openmpi 2/4 local 0/2");
  EXPECT_EQ(
      place(read({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}})),
      "pmi 2/4 local 1/3");
  EXPECT_EQ(place(read({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})), "pmi 2/4 local 2/4");
}

TEST_F(Startup, AnIpv6AddressMayStandInBrackets) {
  const Environment e = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}});
  EXPECT_EQ(e.host, "::1");
  EXPECT_EQ(place(e), "torchrun 1/2 local 1/2") << "loopback is this host";
}

TEST_F(Startup, SlurmsShortFormsAreRead) {
  const Variables task = {{"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NNODES", "4"},
                          {"SLURM_NODEID", "3"},
                          {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_NODELIST", "n[03-05,9]"},
                          {"MASTER_PORT", "29500"}};
  const Environment e = read(task);
  EXPECT_EQ(place(e), "slurm 6/7 local 0/1");
  EXPECT_EQ(e.host, "n03");
  EXPECT_EQ(e.port, 29500);
  Variables other = task;
  other["SLURM_NODEID"] = "2";
  other["SLURM_STEP_NODELIST"] = "alpha,beta";
  other["MASTER_ADDR"] = "";
  EXPECT_EQ(read(other).local_size, 2);
  EXPECT_EQ(read(other).host, "alpha");
}

TEST_F(Startup, TheOrderIsTorchrunSlurmOpenMpiPmi) {
  Variables all = {
      {"RANK", "1"},     {"WORLD_SIZE", "2"},           {"SLURM_PROCID", "2"},         {"SLURM_NTASKS", "3"},
      {"PMI_RANK", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_SIZE", "5"}};
  for (const auto& [launcher, rank] :
       {std::pair("torchrun", "RANK"), std::pair("slurm", "SLURM_PROCID"),
        std::pair("openmpi", "OMPI_COMM_WORLD_RANK"), std::pair("pmi", "PMI_RANK")}) {
    EXPECT_EQ(read(all).launcher, launcher);
    all.erase(rank);
    all.erase("WORLD_SIZE");
    if (std::string(rank) == "OMPI_COMM_WORLD_RANK") all.erase("OMPI_COMM_WORLD_SIZE");
    if (std::string(rank) == "SLURM_PROCID") all.erase("SLURM_NTASKS");
  }
}

TEST_F(Startup, EveryRefusalNamesTheVariableAndItsValue) {
  const std::vector<std::pair<Variables, std::vector<std::string>>> table = {
      {{{"RANK", "0"}}, {"RANK is set but WORLD_SIZE is not"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE is set but RANK is not"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}},
       {"LOCAL_RANK is set but LOCAL_WORLD_SIZE is not"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       {"LOCAL_WORLD_SIZE is set but LOCAL_RANK"}},
      {{{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}, {"LOCAL_RANK is set but RANK is not"}},
      {{{"RANK", "two"}, {"WORLD_SIZE", "4"}}, {"RANK is \"two\"", "not an integer"}},
      {{{"RANK", "1.5"}, {"WORLD_SIZE", "4"}}, {"RANK is \"1.5\""}},
      {{{"RANK", " 1"}, {"WORLD_SIZE", "4"}}, {"RANK is \" 1\""}},
      {{{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "4"}}, {"RANK is \"99999999999999999999\""}},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, {"RANK is \"-1\""}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE is \"0\""}},
      {{{"RANK", "4"}, {"WORLD_SIZE", "4"}}, {"RANK is 4", "WORLD_SIZE, which is 4"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       {"LOCAL_RANK is 2", "LOCAL_WORLD_SIZE, which is 2"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "3"}},
       {"3 ranks", "of 2"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "http"}}, {"MASTER_PORT is \"http\""}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "65536"}}, {"MASTER_PORT is \"65536\""}},
      {{{"SLURM_PROCID", "0"}}, {"SLURM_PROCID is set but SLURM_NTASKS is not"}},
      {{{"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "4"}}, {"SLURM_PROCID is 4"}},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "4"}}, {"SLURM_LOCALID is \"4\""}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not"}},
      {{{"PMI_SIZE", "2"}}, {"PMI_RANK is not"}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"GANGWAY_RESTART_COUNT", "x"}},
       {"GANGWAY_RESTART_COUNT is \"x\""}},
  };
  for (const auto& [variables, words] : table) {
    const std::string message = refusal(variables);
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << message << "\n" << word;
  }
}

TEST_F(Startup, AnotherSizeThanExpectedIsRefused) {
  const Environment e = read({{"RANK", "1"}, {"WORLD_SIZE", "4"}});
  check_expected_size(e, 4, "expected_size");
  try {
    check_expected_size(e, 8, "expected_size");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_EQ(error.message(), "expected_size is 8, but the environment gives 4 ranks (launcher: torchrun)");
  }
}

TEST_F(Startup, JobsAndRestartsAreNamed) {
  Variables v = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(read(v).job, text("port.29500.", getppid())) << "torchrun's \"none\" names no job";
  v.erase("TORCHELASTIC_RUN_ID");
  EXPECT_EQ(read(v).job, "port.29500") << "by hand each rank has a shell of its own";
  v.erase("MASTER_PORT");
  EXPECT_EQ(read(v).job, "port.0");
  v["MASTER_PORT"] = "29500";
  v["PMIX_NAMESPACE"] = "space";
  EXPECT_EQ(read(v).job, "pmix.space.29500");
  v["SLURM_PROCID"] = "1";
  v["SLURM_JOB_ID"] = "77";
  v["SLURM_STEP_ID"] = "3";
  EXPECT_EQ(read(v).job, "slurm.77.3.29500");
  v["TORCHELASTIC_RUN_ID"] = "run";
  v["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_EQ(read(v).job, "torch.run");
  EXPECT_EQ(read(v).restart, 2);
  v["GANGWAY_JOB"] = "own";
  v["GANGWAY_RESTART_COUNT"] = "5";
  EXPECT_EQ(read(v).job, "own");
  EXPECT_EQ(read(v).restart, 5);
}

TEST_F(Startup, HostsOfOneAttemptOfTorchrunMayHaveCountedDifferentRestarts) {
  Variables v = {{"RANK", "1"},
                 {"WORLD_SIZE", "4"},
                 {"LOCAL_RANK", "1"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "10.0.0.1"},
                 {"MASTER_PORT", "29500"},
                 {"TORCHELASTIC_RUN_ID", "run"},
                 {"TORCHELASTIC_RESTART_COUNT", "1"}};
  EXPECT_EQ(read(v).restart, 0);
  v["GANGWAY_RESTART_COUNT"] = "5";
  EXPECT_EQ(read(v).restart, 5);
}

TEST_F(Startup, SeveralHostsWithoutASecretAreRefused) {
  const Environment e = read({{"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", "0"},
                              {"LOCAL_WORLD_SIZE", "1"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "29500"}});
  try {
    connect(e, 0, Deadline::after_ms(1000));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("GANGWAY_SECRET_FILE"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace gangway
