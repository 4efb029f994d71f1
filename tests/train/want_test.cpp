// Want of memory at every single allocation of a collective call of a model: an error on every rank, never a hang, never a
// crash.
#include "gang/host_threads.h"
#include "gang/rank_want.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

// What a call finds, made while there was memory.
struct Scene {
  explicit Scene(Gang& root)
      : rig(llama_rig(root)),
        batch(pattern_batch(*rig.model, 2, 6, root.rank())),
        described(make_llama(small_llama()), make_gangs(root)),
        parameter(*rig.model->parameters()[0].parameter),
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

// Rank 1 has `allocations` of memory for its call, then none or (`once`) all but one. True: that was enough.
template <typename Call>
bool step_is_made(long allocations, bool once, Call&& call) {
  bool enough = false;
  Meeting both(2);
  run_ranks(2, [&](Gang& root) {
    Scene scene(root);
    both.come();  // what breaks below broke nothing above
    if (made_with(root, allocations, once, [&] { call(scene); })) enough = true;
  });
  return enough;
}

template <typename Call>
void starve(const char* what, bool once, Call&& call, long over = 5) {
  constexpr long kMost = 20'000;
  long allocations = 0;
  while (allocations < kMost && !testing::Test::HasFailure() && !step_is_made(allocations, once, call))
    allocations += 1 + allocations / 30;
  EXPECT_GT(allocations, over) << what << " wants memory";
  EXPECT_LT(allocations, kMost) << what;
}

template <typename Call>
void starve(const char* what, Call&& call) {
  for (const bool once : {false, true}) starve(what, once, call);
}

TEST(StepWant, EveryAllocationOfOneRankMayFail) {
  starve("a step", [](Scene& s) { s.rig.step(s.batch); });
}

TEST(StepWant, EveryAllocationOfOneRankMayFailInTheOptimizersHalf) {
  starve("the optimizer's half",
         [](Scene& s) { optimizer_step(s.model(), *s.rig.optimizer, {}, s.rig.stream()); });
}

TEST(ModelWant, EveryAllocationOfOneRankMayFailInParallelize) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    // A rank that has none left could not even give back what it took of the arena.
    starve("parallelize", /*once=*/true, [&](Scene& s) { s.described.parallelize(parallel(strategy)); });
}

TEST(ModelWant, EveryAllocationOfOneRankMayFailWhereValuesAreGathered) {
  starve("gather", [](Scene& s) { s.model().gather(s.parameter, s.rig.stream()); });
  starve("gather_gradient", [](Scene& s) { s.model().gather_gradient(s.parameter, s.rig.stream()); });
}

TEST(ModelWant, EveryAllocationOfOneRankMayFailInAClip) {
  starve("clip_gradients", [](Scene& s) { s.model().clip_gradients(1, 2, s.rig.stream()); });
}

TEST(ModelWant, EveryAllocationOfOneRankMayFailInAWriteOfValues) {
  for (const bool once : {false, true})
    starve(
        "assign", once, [](Scene& s) { s.model().assign(s.parameter, s.whole, s.rig.stream()); }, 0);
}

}  // namespace
}  // namespace gangway::test
