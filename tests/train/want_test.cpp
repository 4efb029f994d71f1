// Want of memory at every single allocation of a step: an error on every rank, never a hang, never a crash.
#include "gang/host_threads.h"
#include "gang/rank_want.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

// Rank 1 has `allocations` of memory for its call, then none or (`once`) all but one. True: that was enough.
template <typename Call>
bool step_is_made(long allocations, bool once, Call&& call) {
  bool enough = false;
  Meeting both(2);
  run_ranks(2, [&](Gang& root) {
    const Rig rig = llama_rig(root);
    const Batch batch = pattern_batch(*rig.model, 2, 6, root.rank());
    both.come();  // what breaks below broke nothing above
    if (made_with(root, allocations, once, [&] { call(rig, batch); })) enough = true;
  });
  return enough;
}

template <typename Call>
void starve(const char* what, Call&& call) {
  constexpr long kMost = 20'000;
  for (const bool once : {false, true}) {
    long allocations = 0;
    while (allocations < kMost && !step_is_made(allocations, once, call)) allocations += 1 + allocations / 30;
    EXPECT_GT(allocations, 5) << what << " wants memory";
    EXPECT_LT(allocations, kMost) << what;
  }
}

TEST(StepWant, EveryAllocationOfOneRankMayFail) {
  starve("a step", [](const Rig& rig, const Batch& batch) { rig.step(batch); });
}

TEST(StepWant, EveryAllocationOfOneRankMayFailInTheOptimizersHalf) {
  starve("the optimizer's half",
         [](const Rig& rig, const Batch&) { optimizer_step(*rig.model, *rig.optimizer, {}, rig.stream()); });
}

}  // namespace
}  // namespace gangway::test
