// Training on the module for CUDA, where every rank is a process with its own GPUs. It equals the reference
// files, and the survivors of a killed rank go on.
#include <dirent.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <set>

#include "train/five_steps.h"

#include "gang/host/joined.h"
#include "gang/host/mix.h"
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

TEST_F(CudaProcesses, TwoShardedRanksEqualTheReference) {
  if (std::getenv("GANGWAY_TEST_ALL") == nullptr) GTEST_SKIP() << "20 s; with GANGWAY_TEST_ALL=1";
  expect(2, {1, Strategy::full_shard, 1});
}
TEST_F(CudaProcesses, TwoShardedRanksEqualTheReferenceInF32) {
  if (std::getenv("GANGWAY_TEST_ALL") == nullptr) GTEST_SKIP() << "20 s; with GANGWAY_TEST_ALL=1";
  expect(2, {1, Strategy::full_shard, 1}, DType::f32);
}
TEST_F(CudaProcesses, FourRanksOfShardsAndTensorParallelEqualTheReference) {
  if (std::getenv("GANGWAY_TEST_ALL") == nullptr) GTEST_SKIP() << "30 s; with GANGWAY_TEST_ALL=1";
  expect(4, {1, Strategy::full_shard, 1, /*tp=*/2, /*sequence=*/true});
}
TEST_F(CudaProcesses, FourRanksOfShardsAndStagesEqualTheReference) {
  expect(4, {1, Strategy::full_shard, 2, 1, false, 1, /*pp=*/2});
}

// Returns the losses of two steps, as bits.
void two_steps(Gang& gang, Report& report) {
  const Rig rig = llama_rig(gang, Strategy::full_shard, DType::f32);
  for (size_t i = 0; i < 2; ++i)
    report.values[i] = std::bit_cast<int64_t>(rig.step(pattern_batch(*rig.model, 1, 6, gang.rank())).loss);
}

TEST_F(CudaProcesses, RegisteredMemoryChangesNoBitOfALoss) {
  std::array<std::array<int64_t, 2>, 2> losses{};
  for (const size_t registered : {0u, 1u}) {
    Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      setenv("GANGWAY_NCCL_REGISTER", registered != 0 ? "1" : "0", 1);
      {
        const GangPtr root = cuda_root(r, 2, store);
        two_steps(*root, report);
        root->shutdown(60'000);
      }
      EXPECT_EQ(gpu_emulation::calls("ncclCommWindowRegister") > 10, registered != 0);
      EXPECT_EQ(gpu_emulation::report(), "");
      EXPECT_EQ(gpu_emulation::living(), 0);
    });
    ranks.expect_all_well();
    losses[registered] = {ranks.report(0).values[0], ranks.report(0).values[1]};
  }
  EXPECT_EQ(losses[0], losses[1]);
}

struct Places {
  const char* name;
  int replicas, reshard_after_forward;
  const char* counted;  // collectives between symmetric windows, of gangs that are not those of the shards
};

// Replicas sum what the shards have reduced, and backward gathers what a part of the shards has kept.
TEST_F(CudaProcesses, ReplicasAndPostForwardGangsMoveRegisteredMemory) {
  for (const Places& places : {Places{"replicas", 2, 1, "symmetric all_reduce of 2"},
                               Places{"post-forward", 1, 2, "symmetric all_gather of 2"}}) {
    std::array<std::array<int64_t, 2>, 2> losses{};
    for (const size_t registered : {0u, 1u}) {
      Processes ranks(4, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
        setenv("GANGWAY_NCCL_REGISTER", registered != 0 ? "1" : "0", 1);
        {
          const GangPtr root = cuda_root(r, 4, store);
          const GangsPtr gangs = make_gangs(*root, places.replicas);
          ParallelOptions options = parallel(Strategy::full_shard, DType::f32);
          options.shard.reshard_after_forward = places.reshard_after_forward;
          Rig rig;
          rig.model = make_model(make_decoder(small_llama()), gangs, options);
          rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
          for (size_t i = 0; i < 2; ++i)
            report.values[i] = std::bit_cast<int64_t>(rig.step(pattern_batch(*rig.model, 1, 6, r)).loss);
          report.values[2] = gpu_emulation::calls(places.counted);
          const int64_t allocated = gpu_emulation::calls("ncclMemAlloc");
          rig = {};
          rig.model = make_model(make_decoder(small_llama()), gangs, options);
          EXPECT_GE(gpu_emulation::calls("ncclMemFree"), allocated - 1) << "the engine keeps its sums";
          rig = {};
          root->shutdown(60'000);
        }
        EXPECT_EQ(gpu_emulation::report(), "");
        EXPECT_EQ(gpu_emulation::living(), 0);
      });
      ranks.expect_all_well();
      losses[registered] = {ranks.report(0).values[0], ranks.report(0).values[1]};
      EXPECT_EQ(ranks.report(0).values[2] != 0, registered != 0) << places.name;
    }
    EXPECT_EQ(losses[0], losses[1]) << places.name;
  }
}

// A rank that registers nothing would not come to the collective registration of the others.
TEST_F(CudaProcesses, AModelWhoseMemoryOnlySomeRanksRegisterIsRefusedOnAllRanks) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report& report) {
    setenv("GANGWAY_NCCL_REGISTER", r == 0 ? "1" : "0", 1);
    const GangPtr root = cuda_root(r, 2, store);
    until_failure(report, [&] { llama_rig(*root, Strategy::full_shard, DType::f32); });
  });
  ranks.expect_all_well();
  for (const int r : {0, 1}) {
    const Report& report = ranks.report(r);
    EXPECT_EQ(report.code, static_cast<int64_t>(Code::mismatch)) << report.text;
    EXPECT_NE(std::strstr(report.text, "GANGWAY_NCCL_REGISTER"), nullptr) << report.text;
  }
}

TEST_F(CudaProcesses, SurvivorsOfAKilledRankTrainOnAsAGangOfTheirSizeDoes) {
  Processes two(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = cuda_root(r, 2, store);
    two_steps(*root, report);
    root->shutdown(60'000);
  });
  two.expect_all_well();
  const std::vector<int> survivors{0, 2};
  Processes three(3, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = cuda_root(r, 3, store);
    report.stage = 1;
    {
      const Rig rig = llama_rig(*root, Strategy::full_shard, DType::f32);
      until_failure(report, [&] {
        rig.step(pattern_batch(*rig.model, 1, 6, r));
        ++report.stage;
      });
    }
    const GangPtr rest = root->shrink(survivors);
    EXPECT_STREQ(rest->engine_name(), "nccl");
    two_steps(*rest, report);
    rest->shutdown(60'000);
  });
  three.wait_for_stage(1, 2);
  three.kill(1, SIGKILL);
  for (size_t i = 0; i < survivors.size(); ++i) {
    const int r = survivors[i];
    ASSERT_TRUE(three.ended_well(r)) << three.report(r).text;
    for (const size_t at : {0u, 1u})
      EXPECT_EQ(three.report(r).values[at], two.report(static_cast<int>(i)).values[at]) << "rank " << r;
  }
}

// Every rank must gather into the same registered buffer, so no other memory takes its place.
TEST_F(CudaProcesses, AHeldExportOfAWholeValueIsRefusedWhereItsMemoryIsRegistered) {
  for (const bool registered : {true, false}) {
    Processes ranks(2, [registered](int r, const std::shared_ptr<Store>& store, Report& report) {
      setenv("GANGWAY_NCCL_REGISTER", registered ? "1" : "0", 1);
      const GangPtr root = cuda_root(r, 2, store);
      const Rig rig = llama_rig(*root, Strategy::full_shard, DType::f32);
      FsdpState& fsdp = rig.model->fsdp();
      const auto found = std::find_if(fsdp.groups().begin(), fsdp.groups().end(),
                                      [](const auto& group) { return !group->parameters().empty(); });
      ASSERT_NE(found, fsdp.groups().end());
      ParameterGroup& group = **found;
      const auto gather = [&] {
        fsdp.unshard(group, /*forward=*/true, rig.stream());
        const Tensor value = group.parameters().front().parameter->value;
        fsdp.reshard_all();
        if (report.stage++ > 10) fail(Code::caller, "no refusal");
        return value;
      };
      const Tensor held = gather();
      until_failure(report, gather);
      rig.stream().synchronize();
    });
    ranks.expect_all_well();
    for (const int r : {0, 1}) {
      const Report& report = ranks.report(r);
      EXPECT_EQ(report.code, static_cast<int64_t>(registered ? Code::invalid_state : Code::caller))
          << report.text;
      EXPECT_EQ(std::strstr(report.text, "is still held") != nullptr, registered) << report.text;
    }
  }
}

// The check phase finds the export, so that all ranks are told and the gang stays usable.
TEST_F(CudaProcesses, AStepWithAHeldExportOfOneRankIsRefusedAndLeavesTheGangUsable) {
  Processes ranks(2, [](int r, const std::shared_ptr<Store>& store, Report& report) {
    setenv("GANGWAY_NCCL_REGISTER", "1", 1);
    const GangPtr root = cuda_root(r, 2, store);
    const Rig rig = llama_rig(*root, Strategy::full_shard, DType::f32);
    FsdpState& fsdp = rig.model->fsdp();
    const auto step = [&] { rig.step(pattern_batch(*rig.model, 1, 6, r)); };
    const auto export_of = [&](ParameterGroup& group) {
      fsdp.unshard(group, /*forward=*/true, rig.stream());
      const Tensor value = group.parameters().front().parameter->value;
      fsdp.reshard_all();
      return value;
    };
    FsdpState adopting(rig.model->gangs().shared_from_this(),
                       rig.model->ops());  // whose groups have buffers of another state
    adopting.adopt(fsdp);
    for (const auto& group : fsdp.groups()) {
      if (group->parameters().empty()) continue;
      Tensor held = export_of(*group);
      if (r == 0) held = {};
      EXPECT_EQ(error_of([&] { adopting.check_exports(); }).code(), r == 0 ? Code::ok : Code::invalid_state);
      const Error error = error_of(step);
      EXPECT_EQ(error.code(), Code::invalid_state) << error.message();
      EXPECT_NE(error.message().find("is still held"), std::string::npos) << error.message();
    }
    step();
    report.stage = 1;
  });
  ranks.expect_all_well();
  for (const int r : {0, 1}) EXPECT_EQ(ranks.report(r).stage, 1);
}

struct Death {
  int size, victim, steps, later_us;  // the victim is killed later_us after these steps

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
  Rig rig;
  StepOptions step;
  step.max_grad_norm = 1;
  until_failure(report, [&] {
    if (!rig.model) rig = llama_rig(*root, Strategy::full_shard, DType::f32);
    rig.step(pattern_batch(*rig.model, 1, 6, r), step);
    ++report.stage;
  });
  stay_until_released(report);
  report.gang_code = root->error() ? static_cast<int64_t>(root->error()->code()) : 0;
}

// The host waits for its GPU, and the GPU waits for a peer that has died.
TEST_F(CudaProcesses, AHostThatWaitsForItsGpuGetsTheLossOfAPeer) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    const GangPtr root = cuda_root(r, 2, store);
    Stream& stream = root->device().stream();
    const Tensor one = Tensor::allocate(root->device().allocator(), DType::f32, {1});
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.reduce = Reduce::sum;
    c.in = c.out = one.raw();
    c.count = 1;
    root->run(Channel::user, c, &stream)->wait(Deadline::after_ms(60'000));
    if (r == 0) report.stage = 1;
    if (r == 1) {  // it announces its part, which starts after work of a second
      const Tensor large = Tensor::allocate(root->device().allocator(), DType::u8, {32 << 20});
      for (int i = 0; i < 300; ++i) root->device().zero(large.raw(), large.bytes(), stream);
      const WorkPtr work = root->run(Channel::user, c, &stream);
      report.stage = 1;
      for (;;) pause();
    }
    until_failure(report, [&] {
      root->run(Channel::user, c, &stream)->order(stream);
      stream.synchronize();
    });
  });
  for (const int r : {0, 1}) ranks.wait_for_stage(r, 1);
  ranks.kill(1, SIGKILL);
  ASSERT_TRUE(ranks.ended_well(0)) << ranks.report(0).text;
  EXPECT_EQ(ranks.report(0).code, static_cast<int64_t>(Code::peer_lost)) << ranks.report(0).text;
  EXPECT_EQ(ranks.report(0).peer, 1);
}

// The data engine waits forever. The control plane must notice.
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
    release_after_failures(ranks, survivors);
    for (const int r : survivors) {
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r)) << "round " << round << " rank " << r << ": " << report.text;
      ASSERT_EQ(report.code, static_cast<int64_t>(Code::peer_lost))
          << "round " << round << ": " << report.text;
      ASSERT_EQ(report.peer, death.victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", death.victim, " (host ").c_str()), nullptr)
          << report.text;
      ASSERT_EQ(report.gang_code, static_cast<int64_t>(Code::peer_lost)) << "the root is broken, too";
    }
  }
  // Other programs may make names meanwhile, so only those of Gangway count.
  for (const std::string& name : shared_memory())
    EXPECT_TRUE(before.contains(name) || name.find("gangway") == std::string::npos) << name << " stayed";
}

}  // namespace
}  // namespace gangway::test
