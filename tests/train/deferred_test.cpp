// Training steps on the deferred device: they give the same bits as on a CPU for every order in which the
// device's streams run, and the host waits for the device a known number of times.
#include "support/deferred/deferred.h"
#include "base/sanitized.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

// The number of orders to test, which GANGWAY_TEST_SEEDS overrides.
int seeds() {
  const char* const wanted = std::getenv("GANGWAY_TEST_SEEDS");
#ifdef GANGWAY_TEST_SANITIZED
  constexpr int kUsual = 4;
#else
  constexpr int kUsual = 24;
#endif
  return wanted == nullptr ? kUsual : std::atoi(wanted);
}

GangOptions on_device(const std::string& device) {
  GangOptions options = thread_rank_options();
  options.device = device;
  return options;
}

struct Case {
  int ranks, replicas;
  Strategy strategy;
  int microbatches;
  bool clips;
  DType param;
  std::string describe() const {
    return text(ranks, " ranks, ", replicas, " replicas, strategy ", static_cast<int>(strategy), ", ",
                microbatches, " microbatches, ", clips ? "clips, " : "", "param ",
                param == DType{} ? "f32" : name(param));
  }
};

// The seeds cover all numbers of ranks, strategies and precisions. Most cases clip and have several
// microbatches.
Case case_of(int seed) {
  constexpr Strategy kStrategies[] = {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard};
  const int ranks = 1 + seed % 4;
  return {ranks,
          ranks == 4 && seed % 8 == 3 ? 2 : 1,
          kStrategies[seed / 4 % 3],
          1 + (seed + seed / 3) % 3,
          seed % 5 != 0,
          seed / 12 % 2 == 0 ? DType{} : DType::bf16};
}

// Losses and norms of three steps, then all parameters.
std::vector<double> trained(const std::string& device, const Case& c) {
  std::vector<double> trace;
  run_ranks(
      c.ranks,
      [&](Gang& root) {
        ParallelOptions parallel_options = parallel(c.strategy, DType::f32);
        parallel_options.shard.param_dtype = c.param;
        Rig rig;
        rig.model = make_model(make_decoder(small_llama()), make_gangs(root, c.replicas), parallel_options);
        rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
        StepOptions options;
        options.microbatches = c.microbatches;
        options.max_grad_norm = c.clips ? 0.5 : 0;
        std::vector<double> own;
        for (int i = 0; i < 3; ++i) {
          const StepResult result = rig.step(pattern_batch(*rig.model, 3, 6, root.rank() + i), options);
          own.push_back(result.loss);
          own.push_back(result.grad_norm);
        }
        for (const double x : rig.parameters()) own.push_back(x);
        if (root.rank() == 0) trace = own;
      },
      on_device(device));
  return trace;
}

TEST(DeferredStep, GivesTheCpusBitsForEverySeed) {
  const int count = seeds();
  for (int seed = 0; seed < count; ++seed) {
    const Case c = case_of(seed);
    EXPECT_EQ(trained("deferred:" + std::to_string(seed), c), trained("cpu", c))
        << "seed " << seed << ", " << c.describe();
  }
}

template <typename Call>
int64_t waits_of_host(Gang& root, Call&& call) {
  const int64_t before = deferred::synchronizations(root.device());
  call();
  return deferred::synchronizations(root.device()) - before;
}

struct Row {
  const char* what;
  StepOptions options;
};
const Row kRows[] = {{"plain", {}},
                     {"clipped", {.max_grad_norm = 0.5}},
                     {"clipped by the greatest", {.max_grad_norm = 0.5, .norm_type = INFINITY}},
                     {"accumulated", {.microbatches = 3}},
                     {"accumulated and clipped", {.microbatches = 3, .max_grad_norm = 0.5}},
                     {"not looked at", {.check_finite = false}}};

// The first wait is for the check of ids and labels, the second for the loss, the norm and the finite flag.
TEST(DeferredStep, TheHostWaitsTwiceInATrainingStep) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
    for (const int ranks : {1, 2})
      run_ranks(
          ranks,
          [&](Gang& root) {
            const Rig rig = llama_rig(root, strategy, DType::f32);
            const Batch batch = pattern_batch(*rig.model, 3, 6, root.rank());
            for (const Row& row : kRows) {
              EXPECT_EQ(waits_of_host(root, [&] { rig.step(batch, row.options); }), 2)
                  << row.what << ", " << ranks << " ranks, strategy " << static_cast<int>(strategy);
              EXPECT_EQ(waits_of_host(root, [&] { eval_step(*rig.model, batch, row.options, rig.stream()); }),
                        2)
                  << "evaluation, " << row.what;
            }
          },
          on_device("deferred:7"));
}

// The result of the check is then read together with the sums.
TEST(DeferredStep, TheHostWaitsOnceWhereTheBatchSaysItsWeight) {
  for (const int ranks : {1, 2})
    run_ranks(
        ranks,
        [&](Gang& root) {
          const Rig rig = llama_rig(root, Strategy::full_shard, DType::f32);
          Batch batch = pattern_batch(*rig.model, 3, 6, root.rank());
          const double loss = rig.step(batch).loss;
          batch.weight = 3 * 5;
          const Rig other = llama_rig(root, Strategy::full_shard, DType::f32);
          EXPECT_EQ(waits_of_host(root, [&] { EXPECT_EQ(other.step(batch).loss, loss); }), 1);
          EXPECT_EQ(waits_of_host(root, [&] { eval_step(*other.model, batch, {}, other.stream()); }), 1);
        },
        on_device("deferred:7"));
}

TEST(DeferredStep, AWrongIdOrWeightOfABatchThatSaysItsWeightIsRefusedOnAllRanksAndChangesNothing) {
  run_ranks(
      2,
      [&](Gang& root) {
        const Rig rig = llama_rig(root, Strategy::full_shard, DType::f32);
        const std::vector<double> before = rig.parameters();
        Batch good = pattern_batch(*rig.model, 3, 6, root.rank());
        good.weight = 3 * 5;
        Batch bad = good;
        std::vector<int64_t> ids = copy_out<int64_t>(bad.inputs[0]);
        ids[4] = 17;
        bad.inputs[0] = tensor_of(*rig.model, DType::i64, bad.inputs[0].shape(), ids.data());
        const Error wrong_id = error_of([&] { rig.step(root.rank() == 1 ? bad : good); });
        EXPECT_EQ(wrong_id.code(), Code::invalid_argument);
        EXPECT_NE(wrong_id.message().find("token id 17 is outside the vocabulary of 17"), std::string::npos)
            << wrong_id.message();
        Batch heavy = good;
        heavy.weight = 16;
        const Error wrong_weight = error_of([&] { rig.step(root.rank() == 1 ? heavy : good); });
        EXPECT_NE(wrong_weight.message().find("batch.weight = 16, but 15 labels count"), std::string::npos)
            << wrong_weight.message();
        EXPECT_EQ(rig.parameters(), before);
        EXPECT_EQ(rig.step(good).skipped, Skip::none);
      },
      on_device("deferred:7"));
}

TEST(DeferredStep, ManualForwardAndBackwardWaitForNothingAndTheOptimizersHalfOnce) {
  for (const int ranks : {1, 2})
    run_ranks(
        ranks,
        [&](Gang& root) {
          const Rig rig = llama_rig(root, Strategy::full_shard, DType::f32);
          const Batch batch = pattern_batch(*rig.model, 3, 6, root.rank());
          const Tensor inputs[] = {batch.inputs[0], batch.targets[0]};
          for (const Row& row : kRows) {
            const int64_t manual = waits_of_host(root, [&] {
              Context ctx = rig.model->run().context(rig.stream());
              ctx.training = true;
              Frame& frame = rig.model->frame(0);
              rig.model->run().forward(ctx, inputs, &frame);
              rig.model->run().backward(ctx, {}, frame);
              frame.reset();
            });
            EXPECT_EQ(manual, 0) << row.what;
            const bool looks = row.options.max_grad_norm > 0 || row.options.check_finite;
            EXPECT_EQ(
                waits_of_host(root,
                              [&] { optimizer_step(*rig.model, *rig.optimizer, row.options, rig.stream()); }),
                looks ? 1 : 0)
                << row.what;
          }
        },
        on_device("deferred:7"));
}

TEST(DeferredStep, TheRankThatDrawsWaitsOnceForEachTokenAndNoOtherRankWaits) {
  run_ranks(
      2,
      [&](Gang& root) {
        const Rig rig = llama_rig(root, Strategy::full_shard, DType::f32);
        const std::vector<int64_t> prompt = {3, 1, 4};
        GenerateOptions options;
        options.new_tokens = 5;
        EXPECT_EQ(waits_of_host(root, [&] { generate(*rig.model, prompt, options, rig.stream()); }),
                  root.rank() == 0 ? 5 : 0);
      },
      on_device("deferred:7"));
}

}  // namespace
}  // namespace gangway::test
