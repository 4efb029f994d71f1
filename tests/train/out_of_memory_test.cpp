// Runs out of memory at every single allocation of a collective call of a model. Every rank gets an error,
// and no rank hangs or crashes.
#include <set>

#include "gang/host/threads.h"
#include "gang/rank_out_of_memory.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

// The objects that a call uses. They are made while there is memory.
struct Scene {
  explicit Scene(Gang& root)
      : rig(llama_rig(root)),
        batch(pattern_batch(*rig.model, 2, 6, root.rank())),
        described(make_decoder(small_llama()), make_gangs(root)),
        parameter(*rig.model->inspect().parameters()[0].parameter),
        whole(Tensor::allocate(rig.model->device().allocator(), DType::f32, parameter.shape)) {
    std::fill_n(whole.data<float>(), whole.count(), 1.0f);
  }
  Model& model() const { return *rig.model; }

  const Rig rig;
  const Batch batch;
  Model described;
  Parameter& parameter;
  const Tensor whole;
};

// Rank 1 can make `allocations` allocations in its call, and then none; with `once` only the next one fails.
// Returns whether the call succeeded.
template <typename Call>
bool step_is_made(long allocations, bool once, Call&& call) {
  bool enough = false;
  Meeting both(2);
  run_ranks(2, [&](Gang& root) {
    Scene scene(root);
    both.come();  // so that the failure below does not reach the setup
    if (made_with(root, allocations, once, [&] { call(scene); })) enough = true;
  });
  return enough;
}

constexpr long kMost = 20'000;

// Returns the numbers of rank 1's allocations in its call, only the first one for each call stack: later
// layers repeat the same stacks.
template <typename Call>
std::vector<long> allocations_of(Call&& call) {
  std::vector<uint64_t> chains(kMost);
  long count = 0;
  run_ranks(2, [&](Gang& root) {
    Scene scene(root);
    if (root.rank() == 1) {
      stacks = chains.data();
      stack_count = 0;
      stack_room = kMost;
    }
    call(scene);
    if (root.rank() == 1) {
      count = stack_count;
      stack_room = 0;
    }
  });
  std::vector<long> first;
  std::set<uint64_t> seen;
  for (long i = 0; i < count; ++i)
    if (seen.insert(chains[static_cast<size_t>(i)]).second) first.push_back(i);
  return first;
}

template <typename Call>
void fail_each_allocation(const char* what, bool once, Call&& call, size_t over = 5) {
  const std::vector<long> allocations = allocations_of(call);
  EXPECT_GE(allocations.size(), over) << what << " wants memory";
  for (const long before : allocations) {
    if (testing::Test::HasFailure()) return;
    step_is_made(before, once, call);
  }
  EXPECT_TRUE(step_is_made(kMost, once, call)) << what;
}

template <typename Call>
void fail_each_allocation(const char* what, Call&& call) {
  for (const bool once : {false, true}) fail_each_allocation(what, once, call);
}

TEST(StepOutOfMemory, EveryAllocationOfOneRankMayFail) {
  fail_each_allocation("a step", [](Scene& s) { s.rig.step(s.batch); });
}

TEST(StepOutOfMemory, EveryAllocationOfOneRankMayFailInTheOptimizersHalf) {
  fail_each_allocation("the optimizer's half",
                       [](Scene& s) { optimizer_step(s.model(), *s.rig.optimizer, {}, s.rig.stream()); });
}

TEST(ModelOutOfMemory, EveryAllocationOfOneRankMayFailInParallelize) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    // A rank without any memory could not even give back what it has taken of the arena.
    fail_each_allocation("parallelize", /*once=*/true,
                         [&](Scene& s) { s.described.build().parallelize(parallel(strategy)); });
}

TEST(ModelOutOfMemory, EveryAllocationOfOneRankMayFailWhereValuesAreGathered) {
  fail_each_allocation("gather", [](Scene& s) { s.model().inspect().gather(s.parameter, s.rig.stream()); });
  fail_each_allocation("gather_gradient",
                       [](Scene& s) { s.model().inspect().gather_gradient(s.parameter, s.rig.stream()); });
}

TEST(ModelOutOfMemory, EveryAllocationOfOneRankMayFailInAClip) {
  fail_each_allocation("clip_gradients",
                       [](Scene& s) { s.model().run().clip_gradients(1, 2, s.rig.stream()); });
}

TEST(ModelOutOfMemory, EveryAllocationOfOneRankMayFailInAWriteOfValues) {
  for (const bool once : {false, true})
    fail_each_allocation(
        "assign", once, [](Scene& s) { s.model().inspect().assign(s.parameter, s.whole, s.rig.stream()); },
        0);
}

}  // namespace
}  // namespace gangway::test
