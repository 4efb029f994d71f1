// Training on the deferred device: its results are the CPU's for every order in which its streams happen to run, it
// needs each of its events, and the host hardly ever waits.
#include "support/deferred/deferred.h"
#include "base/sanitized.h"
#include "parallel/trial.h"

#if defined(__SANITIZE_THREAD__)
#define GANGWAY_TEST_THREADS_WATCHED
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GANGWAY_TEST_THREADS_WATCHED
#endif
#endif

namespace gangway::test {
namespace {

#ifdef GANGWAY_TEST_SANITIZED
constexpr int kSeeds = 12;
#else
constexpr int kSeeds = 100;
#endif

ModulePtr chain() {
  return make_sequential({make_linear(3, 5, true, 0.5), make_rmsnorm(5, 1e-5), make_linear(5, 7, false, 0.5),
                          make_linear(7, 2, true, 0.5)});
}
const Trial kChain{chain, Shape{4, 3}};

struct Case {
  int ranks = 2;
  int replicas = 1;
  Strategy strategy = Strategy::full_shard;
  DType param = DType{};
};

GangOptions on_device(const std::string& device) {
  GangOptions options = thread_rank_options();
  options.device = device;
  return options;
}

std::unique_ptr<Model> model_on(Gang& root, const Case& c) {
  auto model = std::make_unique<Model>(chain(), mesh_of(root, c.replicas));
  ParallelOptions options;
  options.shard.strategy = c.strategy;
  options.shard.param_dtype = c.param;
  options.master_dtype = DType::f32;
  options.seed = 5;
  model->parallelize(options);
  return model;
}

Trial f32_trial() {
  Trial trial = kChain;
  trial.dtype = DType::f32;
  return trial;
}

// Microbatches, the norm, an update under a clip.
void step(Model& model, Optimizer& optimizer, const Trial& trial, int number) {
  Stream& stream = model.device().stream();
  for (int m = 0; m < 2; ++m) {
    model.set_is_last_backward(m == 1);
    trial.run(model, 2 * number + m);
  }
  const double norm = model.gradient_norm(2, stream);
  model.begin_update(stream);
  optimizer.step(1, std::min(1.0, 0.5 / norm), stream);
  model.end_update(stream, /*copies_written=*/true);
}

using Hook = void (*)(Device& device, int rank);

// Parameters after three steps, as rank 0 gathers them.
std::map<std::string, Vector> trained(const std::string& device, const Case& c, Hook hook = nullptr) {
  std::map<std::string, Vector> out;
  run_ranks(
      c.ranks,
      [&](Gang& root) {
        if (hook != nullptr) hook(root.device(), root.rank());
        const auto model = model_on(root, c);
        const Trial trial = f32_trial();
        const auto optimizer = make_adamw(model->parameters(), trial.adamw(), model->ops());
        for (int number = 0; number < 3; ++number) step(*model, *optimizer, trial, number);
        for (const NamedParameter& p : model->parameters()) {
          const Vector whole = get(model->gather(*p.parameter, model->device().stream()));
          if (root.rank() == 0) out[p.name] = whole;
        }
      },
      on_device(device));
  return out;
}

TEST(DeferredTraining, GivesTheCpusBitsForEverySeed) {
  constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};
  std::map<int, std::map<std::string, Vector>> wanted;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Case c{.ranks = 1 + seed % 4, .strategy = kStrategies[seed / 4 % 3]};
    c.replicas = c.ranks == 4 && seed % 8 == 3 ? 2 : 1;
    c.param = seed / 12 % 2 == 0 ? DType{} : DType::bf16;
    auto& want = wanted[seed % 24];
    if (want.empty()) want = trained("cpu", c);
    EXPECT_EQ(trained("deferred:" + std::to_string(seed), c), want)
        << "seed " << seed << ", " << c.ranks << " ranks";
  }
}

int ignored = -1;

// Rank 0 misses one event; its collectives are slow enough for that to matter.
std::map<std::string, Vector> trained_without(int wait) {
  ignored = wait;
  return trained("deferred:1", {}, [](Device& device, int rank) {
    deferred::set_slow_collectives(device, 1000);
    if (rank == 0) deferred::set_ignored_wait(device, ignored);
  });
}

TEST(DeferredTraining, AnEventThatIsTakenAwayIsMissed) {
  constexpr int kLooked = 8;  // waits of the first step
#ifdef GANGWAY_TEST_THREADS_WATCHED
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    for (int wait = 0; wait < kLooked; ++wait) trained_without(wait);
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race");
#else
  const auto want = trained_without(-1);
  int differ = 0;
  for (int wait = 0; wait < kLooked; ++wait) differ += trained_without(wait) == want ? 0 : 1;
  EXPECT_GT(differ, 0);
#endif
}

TEST(DeferredTraining, AStepWaitsForNothingButTheNorm) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
    for (const int ranks : {1, 2, 4})
      run_ranks(
          ranks,
          [&](Gang& root) {
            const auto model = model_on(root, {.ranks = ranks, .strategy = strategy});
            const Trial trial = f32_trial();
            const auto optimizer = make_adamw(model->parameters(), trial.adamw(), model->ops());
            step(*model, *optimizer, trial, 0);
            const int64_t given = 2 * 4;  // inputs and gradients that the test itself copies to the device
            const int64_t before = deferred::synchronizations(root.device());
            step(*model, *optimizer, trial, 1);
            EXPECT_LE(deferred::synchronizations(root.device()) - before - given, 1) << ranks;
          },
          on_device("deferred:7"));
}

}  // namespace
}  // namespace gangway::test
