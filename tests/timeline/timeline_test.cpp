// A training step on modelled GPUs: what the library puts on the streams, and when it would run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

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

TEST(Timeline, LessThanAFiftiethPartOf8bIsExposedCommunication) {
  const StepTimes times = simulate(step_8b().ranks, Rates());
  EXPECT_LT(exposed(times), kMostExposed);
}

}  // namespace
}  // namespace gangway::timeline
