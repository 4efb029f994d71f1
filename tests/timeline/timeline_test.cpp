// A training step on modelled GPUs: what the library puts on the streams, and when it would run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "support/placed.h"
#include "timeline/kernel_rates.h"
#include "timeline/phases.h"
#include "timeline/plan.h"
#include "timeline/simulate.h"

namespace gangway::timeline {
namespace {

using gpu_emulation::Entry;
using gpu_emulation::Work;

constexpr double kMostExposed = 0.05;

const StepLog& step_8b() {
  static const StepLog log = run_step(plan_8b());
  return log;
}

double exposed(const StepTimes& times) {
  double most = 0;
  for (const RankTimes& rank : times.ranks) most = std::max(most, rank.exposed / times.length);
  return most;
}

TEST(Timeline, AStepOfThe8bPlanRunsOnEightModelledGpusAndEveryKernelIsCosted) {
  const StepLog& log = step_8b();
  EXPECT_EQ(log.report, "");
  EXPECT_TRUE(log.stepped);
  ASSERT_EQ(log.ranks.size(), 8u);
  double product_flops = 0;
  for (const Entry& e : log.ranks[0]) {
    EXPECT_TRUE(e.work != Work::kernel || e.costed) << e.name;
    if (e.work == Work::product) product_flops += e.flops;
  }
  // 6 flops a token and weight, the embedding's left out: 7,504,658,432 of products' weights.
  EXPECT_DOUBLE_EQ(product_flops, 6.0 * 4096 * 7504658432.0);
}

// q, k and v are one product, gate and up another one: of values that were gathered, and into gradients that
// will be reduced.
TEST(Timeline, EachBlockOfAShardedStepHasFourProductsForwardAndEightBackward) {
  const auto vocabulary = static_cast<uint64_t>(plan_8b().model.vocab);
  const std::vector<Entry>& rank = step_8b().ranks[0];
  const auto products = std::count_if(rank.begin(), rank.end(), [&](const Entry& e) {
    return e.work == Work::product && e.m != vocabulary && e.n != vocabulary && e.k != vocabulary;
  });
  EXPECT_EQ(products, 32 * (4 + 8));
}

// Of prefetch, too: without it every gather would be waited for.
TEST(Timeline, LessThanATwentiethOfAStepOf8bIsExposedCommunication) {
  const StepTimes times = simulate(step_8b().ranks, Rates());
  EXPECT_LT(exposed(times), kMostExposed);
}

TEST(Timeline, WithoutPrefetchMoreThanATwentiethIsExposed) {
  Plan plan = plan_8b();
  plan.shard.prefetch_forward = plan.shard.prefetch_backward = 0;
  EXPECT_GT(exposed(simulate(run_step(plan).ranks, Rates())), kMostExposed);
}

// For each of two chunks the head's weight of 1.05 GB is read twice, and its gradient of 2.1 GB in f32 is
// written, and read for the second one. Beside these are the logits in f32, 2.1 GB in all, and their
// gradients.
TEST(Timeline, TheHeadAndItsLossMoveAboutTwentyGigabytes) {
  const Plan plan = plan_8b();
  const auto vocabulary = static_cast<uint64_t>(plan.model.vocab);
  double bytes = 0;
  for (const Entry& e : step_8b().ranks[0])
    if (e.name == "head_loss" ||
        (e.work == Work::product && (e.m == vocabulary || e.n == vocabulary || e.k == vocabulary)))
      bytes += e.bytes;
  EXPECT_GT(bytes, 10e9);
  EXPECT_LT(bytes, 23e9);
  std::printf("head and loss: %.1f GB\n", bytes / 1e9);
}

double sum_of(const std::vector<Phase>& all) {
  double sum = 0;
  for (const Phase& phase : all) sum += phase.seconds;
  return sum;
}
TEST(Timeline, ThePhasesOfAStepAddUpToItsLength) {
  Rates rates;
  rates.kernels = kernel_rates(placed("@source@/tests/bench/cuda_static.json"), rates);
  const auto expect = [&](const StepLog& log, uint64_t vocabulary) {
    const StepTimes times = simulate(log.ranks, rates);
    for (size_t r = 0; r < log.ranks.size(); ++r) {
      const std::vector<Phase> all = phases(log.ranks[r], times.ranks[r], vocabulary);
      EXPECT_NEAR(sum_of(all), times.length, 1e-6 * times.length) << "rank " << r;
      for (const Phase& phase : all) EXPECT_GE(phase.seconds, 0) << phase.name;
      EXPECT_GT(all[1].seconds, 0) << "the head";
    }
  };
  expect(step_8b(), static_cast<uint64_t>(plan_8b().model.vocab));
  Plan plan = plan_8b();
  plan.ranks = 1;
  plan.model.layers = 2;
  plan.moments = DType::bf16;
  for (const int microbatches : {1, 3}) {
    plan.microbatches = microbatches;
    plan.sequences = microbatches;
    expect(run_step(plan), static_cast<uint64_t>(plan.model.vocab));
  }
}

// How often a stream that computes stood still for a gather: its events are recorded on the gathers' stream.
int waits_for_gathers(const std::vector<Entry>& rank, const RankTimes& times) {
  std::map<uint64_t, uint64_t> stream_of;  // by event
  uint64_t gathers = 0;
  for (const Entry& e : rank) {
    if (e.work == Work::record) stream_of[e.event] = e.stream;
    if (e.work == Work::collective && e.name == "all_gather") gathers = e.stream;
  }
  int count = 0;
  for (size_t i = 0; i < rank.size(); ++i) {
    const bool for_gather =
        rank[i].work == Work::wait && rank[i].stream != gathers && stream_of[rank[i].event] == gathers;
    if (for_gather && times.spans[i].end - times.spans[i].start > Rates().kernel_s) ++count;
  }
  return count;
}

TEST(Timeline, OnlyTheGathersOfTheStepsBeginAreWaitedFor) {
  const StepLog& log = step_8b();
  const StepTimes times = simulate(log.ranks, Rates());
  for (size_t r = 0; r < log.ranks.size(); ++r)
    EXPECT_LE(waits_for_gathers(log.ranks[r], times.ranks[r]), 2) << "rank " << r;
}

// The table of the embedding, which its backward does not read, and the last parameter group, whose backward
// comes right after its forward, only once.
TEST(Timeline, EachParameterGroupButTheFirstAndTheLastIsGatheredForForwardAndForBackward) {
  const std::vector<Entry>& rank = step_8b().ranks[0];
  const auto gathers =
      std::count_if(rank.begin(), rank.end(), [](const Entry& e) { return e.name == "all_gather"; });
  const auto groups =
      std::count_if(rank.begin(), rank.end(), [](const Entry& e) { return e.name == "reduce_scatter"; });
  EXPECT_EQ(groups, 34);
  EXPECT_EQ(gathers, 2 * groups - 2);
}

TEST(Timeline, TheHostWaitsOnceInAStepWhoseWeightIsSaidAndElseTwice) {
  Plan plan = plan_8b();
  plan.ranks = 2;
  plan.model.layers = 2;
  for (const auto& rank : run_step(plan).ranks) EXPECT_EQ(host_waits(rank), 1);
  plan.says_weight = false;
  for (const auto& rank : run_step(plan).ranks) EXPECT_EQ(host_waits(rank), 2);
}

TEST(Timeline, ABlockLaunches10KernelsForwardAnd18Backward) {
  const BlockLaunches block = block_launches(plan_8b());
  EXPECT_EQ(block.forward.size(), 10u);
  EXPECT_EQ(block.backward.size(), 18u);
}

TEST(Timeline, ABlockWithBiasesHasFourProductsForwardAndEightBackward) {
  Plan plan = plan_8b();
  plan.model.qkv_bias = plan.model.mlp_bias = true;
  const BlockLaunches block = block_launches(plan);
  EXPECT_EQ(std::count(block.forward.begin(), block.forward.end(), "product"), 4);
  EXPECT_EQ(std::count(block.backward.begin(), block.backward.end(), "product"), 8);
}

}  // namespace
}  // namespace gangway::timeline
