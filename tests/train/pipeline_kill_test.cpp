// Kills a rank of a pipeline, which is a process, at random points of a step, and checks the errors of the
// survivors.
#include <cstdio>
#include <map>

#include "gang/host/joined.h"
#include "gang/host/mix.h"
#include "nn/small_llama.h"
#include "train/pipeline.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

const char* const kSchedules[] = {"1f1b", "zbv", "gpipe", "interleaved-1f1b", "zb-h1"};

PipelineCase case_of(uint64_t round) {
  PipelineCase c{kSchedules[round % std::size(kSchedules)], 2 + static_cast<int>(drawn(99 + round, 0) % 2),
                 6};
  if (c.pp == 2 && drawn(99 + round, 1) % 2 == 0) c.shards = 2;
  return c;
}

void train(const PipelineCase& c, int rank, const std::shared_ptr<Store>& store, Report& report) {
  GangOptions options = thread_rank_options();
  options.rank = rank;
  options.size = c.ranks();
  options.store = store;
  const GangPtr root = Gang::create(options);
  DecoderOptions config = small_llama(/*tied=*/true);
  config.layers = 6;
  Rig rig;
  rig.model = make_model(*root, c, config, DType::f32);
  rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
  StepOptions step;
  step.microbatches = c.microbatches;
  step.max_grad_norm = 1;
  until_failure(report, [&] {
    rig.step(pattern_batch(*rig.model, 6, 6, 1), step);
    ++report.stage;
  });
  stay_until_released(report);
  report.gang_code = root->error() ? static_cast<int64_t>(root->error()->code()) : 0;
}

TEST(PipelineKill, EightyKillsAtRandomPointsNameTheRightRankAndCall) {
  std::map<std::string, int> calls;  // the calls in which survivors got the error
  for (uint64_t round = 0; round < 80; ++round) {
    const PipelineCase c = case_of(round);
    const int victim = static_cast<int>(drawn(99 + round, 2) % static_cast<uint64_t>(c.ranks()));
    Processes ranks(c.ranks(), [&](int r, const std::shared_ptr<Store>& store, Report& report) {
      train(c, r, store, report);
    });
    ranks.wait_for_stage(victim, 1 + static_cast<int>(drawn(99 + round, 3) % 3));
    usleep(static_cast<useconds_t>(drawn(99 + round, 4) % 6000));
    ranks.kill(victim, SIGKILL);
    std::vector<int> survivors;
    for (int r = 0; r < c.ranks(); ++r)
      if (r != victim) survivors.push_back(r);
    release_after_failures(ranks, survivors);
    ranks.join();
    for (const int r : survivors) {
      Report& report = ranks.report(r);
      ASSERT_TRUE(ranks.ended_well(r)) << c.text() << ", rank " << r << ": " << report.text;
      ASSERT_EQ(report.code, static_cast<int64_t>(Code::peer_lost)) << report.text;
      ASSERT_EQ(report.peer, victim) << report.text;
      // In a gang of an axis it says so: "rank 0 (global rank 2, host ...".
      ASSERT_NE(std::strstr(report.text, text("rank ", victim, " (host ").c_str()) == nullptr,
                std::strstr(report.text, text("(global rank ", victim, ", host ").c_str()) == nullptr)
          << report.text;
      ASSERT_EQ(report.gang_code, static_cast<int64_t>(Code::peer_lost)) << "the root is broken, too";
      ++calls[std::string(report.text).substr(0, std::strcspn(report.text, " "))];
    }
  }
  for (const auto& [call, times] : calls) std::printf("%s: %d\n", call.c_str(), times);
}

}  // namespace
}  // namespace gangway::test
