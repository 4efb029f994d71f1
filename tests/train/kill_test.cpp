// Kills a rank, which is a process, somewhere in a sharded step, and checks the errors of the survivors.
#include <cstdio>
#include <cstring>
#include <map>

#include "gang/host/joined.h"
#include "gang/host/mix.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

struct Death {
  // The victim dies `later_us` microseconds after its step number `steps`.
  int size, victim, steps, later_us;
  Strategy strategy;

  explicit Death(uint64_t round) {
    auto random = [&, i = uint64_t{0}](uint64_t below) mutable {
      return static_cast<int>(drawn(777 + round, i++) % below);
    };
    size = 2 + random(3);
    victim = random(static_cast<uint64_t>(size));
    steps = 1 + random(4);
    later_us = random(5000);
    strategy = std::array{Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard}[round % 3];
  }
};

void train(const Death& death, int rank, const std::shared_ptr<Store>& store, Report& report) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = death.size;
  options.store = store;
  const GangPtr root = Gang::create(options);
  const Rig rig = llama_rig(*root, death.strategy, DType::f32);
  StepOptions step;
  step.microbatches = 2;
  step.max_grad_norm = 1;
  until_failure(report, [&] {
    rig.step(pattern_batch(*rig.model, 2, 6, rank), step);
    ++report.stage;
  });
  report.gang_code = root->error() ? static_cast<int64_t>(root->error()->code()) : 0;
}

TEST(TrainKill, ThirtyKillsAtRandomPointsOfAStepNameTheRightRank) {
  std::map<std::string, int> calls;  // the calls in which survivors got the error
  for (uint64_t round = 0; round < 30; ++round) {
    const Death death(round);
    Processes ranks(death.size, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      train(death, r, store, report);
    });
    ranks.wait_for_stage(death.victim, death.steps);
    usleep(static_cast<useconds_t>(death.later_us));
    ranks.kill(death.victim, SIGKILL);
    ranks.join();
    for (int r = 0; r < death.size; ++r) {
      if (r == death.victim) continue;
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r))
          << "round " << round << " rank " << r << ", status " << ranks.status(r) << ": " << report.text;
      ASSERT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
      ASSERT_EQ(report.peer, death.victim) << report.text;
      ASSERT_NE(std::strstr(report.text, text("rank ", death.victim, " (host ").c_str()), nullptr)
          << report.text;
      ASSERT_EQ(std::strncmp(report.text, "gang.", 5), 0) << "no call is named: " << report.text;
      ASSERT_EQ(report.gang_code, static_cast<int64_t>(Code::peer_lost)) << "the root is broken, too";
      ++calls[std::string(report.text).substr(0, std::strcspn(report.text, " "))];
    }
  }
  for (const auto& [call, times] : calls) std::printf("%s: %d\n", call.c_str(), times);
}

}  // namespace
}  // namespace gangway::test
