// Training on the module for CUDA where every rank is a process with GPUs of its own: equal to the reference files, and
// what is left of it when one of them is killed.
#include <dirent.h>

#include <algorithm>
#include <set>

#include "train/five_steps.h"

#include "gang/host_mix.h"
#include "gang/joined.h"
#include "gpu_emulation/emulator.h"
#include "gpu_emulation/ranks.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

std::set<std::string> shared_memory() {
  std::set<std::string> names;
  DIR* const folder = opendir("/dev/shm");
  if (folder == nullptr) return names;
  while (const dirent* const entry = readdir(folder)) names.insert(entry->d_name);
  closedir(folder);
  return names;
}

// Of this machine's other programs may come and go; what this test made has stayed if it is there now alone.
class CudaProcesses : public testing::Test {
 protected:
  void expect(int size, const FiveSteps& steps, DType dtype = DType::f64) {
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
      const Reference reference("llama_parity");
      {
        const GangPtr root = cuda_root(r, size, store);
        EXPECT_STREQ(root->engine_name(), "nccl");
        expect_five_steps(*root, reference, steps, dtype);
        root->shutdown(60'000);
      }
      EXPECT_EQ(gpu_emulation::report(), "");
      EXPECT_EQ(gpu_emulation::living(), 0);
    });
    ranks.expect_all_well();
  }
};

TEST_F(CudaProcesses, TwoShardedRanksEqualTheReference) { expect(2, {1, Strategy::full_shard, 1}); }
TEST_F(CudaProcesses, TwoShardedRanksEqualTheReferenceInF32) {
  expect(2, {1, Strategy::full_shard, 1}, DType::f32);
}
TEST_F(CudaProcesses, FourRanksOfShardsAndTensorParallelEqualTheReference) {
  expect(4, {1, Strategy::full_shard, 1, /*tp=*/2, /*sequence=*/true});
}
TEST_F(CudaProcesses, FourRanksOfShardsAndStagesEqualTheReference) {
  expect(4, {1, Strategy::full_shard, 2, 1, false, 1, /*pp=*/2});
}

struct Death {
  int size, victim, steps, later_us;  // when: so long after so many of the victim's steps

  explicit Death(uint64_t round) {
    size = 2 + static_cast<int>(round % 2);
    victim = static_cast<int>(drawn(31 + round, 0) % static_cast<uint64_t>(size));
    steps = static_cast<int>(drawn(31 + round, 1) % 3);
    later_us = static_cast<int>(drawn(31 + round, 2) % 60'000);
  }
};

void train(const Death& death, int r, const std::shared_ptr<Store>& store, Report& report) {
  const GangPtr root = cuda_root(r, death.size, store);
  report.stage = 1;
  const Rig rig = llama_rig(*root, Strategy::full_shard, DType::f32);
  StepOptions step;
  step.max_grad_norm = 1;
  until_failure(report, [&] {
    rig.step(pattern_batch(*rig.model, 1, 6, r), step);
    ++report.stage;
  });
  stay(report);
  report.number[3] = root->error() ? static_cast<int64_t>(root->error()->code()) : 0;
}

// The engine that moves the data waits for ever; the control plane has to know.
TEST_F(CudaProcesses, AKilledRankIsNamedByAllOthers) {
  const std::set<std::string> before = shared_memory();
  const uint64_t rounds = std::getenv("GANGWAY_TEST_ALL") == nullptr ? 6 : 40;
  for (uint64_t round = 0; round < rounds; ++round) {
    const Death death(round);
    Processes ranks(death.size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      train(death, r, store, report);
    });
    ranks.wait_for_stage(death.victim, 1 + death.steps);
    usleep(static_cast<useconds_t>(death.later_us));
    ranks.kill(death.victim, SIGKILL);
    std::vector<int> survivors;
    for (int r = 0; r < death.size; ++r)
      if (r != death.victim) survivors.push_back(r);
    let_go_when_told(ranks, survivors);
    for (const int r : survivors) {
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r)) << "round " << round << " rank " << r << ": " << report.text;
      ASSERT_EQ(report.number[1], static_cast<int64_t>(Code::peer_lost))
          << "round " << round << ": " << report.text;
      ASSERT_EQ(report.number[2], death.victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", death.victim, " (host ").c_str()), nullptr)
          << report.text;
      ASSERT_EQ(report.number[3], static_cast<int64_t>(Code::peer_lost)) << "the root is broken, too";
    }
  }
  for (const std::string& name : shared_memory())
    EXPECT_TRUE(before.contains(name) || name.find("gangway") == std::string::npos) << name << " stayed";
}

}  // namespace
}  // namespace gangway::test
