// A training step: the weight N of the mean, uneven data, evaluation, and reproducible bits.
#include <algorithm>
#include <cmath>

#include "tensor/host_view.h"
#include "train/label_places.h"
#include "train/rig.h"

namespace gangway {
namespace {

using test::llama_rig;
using test::pattern_batch;
using test::Reference;
using test::Rig;
using test::small_llama;

// The next tokens of each row, and -100 for the last one, which has none.
std::vector<int64_t> next_tokens(const Tensor& tokens) {
  const auto length = static_cast<size_t>(tokens.dim(1));
  std::vector<int64_t> next = test::copy_out<int64_t>(tokens);
  std::rotate(next.begin(), next.begin() + 1, next.end());
  for (size_t last = length - 1; last < next.size(); last += length) next[last] = -100;
  return next;
}

TEST(TrainStep, TokensAloneAndTheirLabelsWithAndWithoutAShiftGiveTheSameStep) {
  test::run_ranks(1, [](Gang& root) {
    const Rig alone = llama_rig(root), over = llama_rig(root), next = llama_rig(root);
    const Batch over_tokens = pattern_batch(*over.model, 3, 7, 0);
    Batch tokens = over_tokens, next_labels = over_tokens;
    tokens.targets.clear();
    next_labels.targets = {
        test::tensor_of(*next.model, DType::i64, Shape{3, 7}, next_tokens(tokens.inputs[0]).data())};
    tokens.shift_labels = next_labels.shift_labels = false;
    const StepResult a = alone.step(tokens), b = over.step(over_tokens), c = next.step(next_labels);
    EXPECT_EQ(a.weight, 18);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.loss, c.loss);
    EXPECT_EQ(alone.parameters(), over.parameters());
    EXPECT_EQ(alone.parameters(), next.parameters());
    EXPECT_EQ(test::copy_out<int64_t>(tokens.inputs[0])[0], 0) << "the caller's tokens stay as they were";
  });
}

struct Places {
  const char* what;
  int64_t length;
  std::vector<int64_t> tokens, labels;
  bool refused_with_shift, refused_without;
};

TEST(LabelPlaces, OnlyLabelsThatFitTheOtherPlaceAloneAreRefused) {
  std::vector<int64_t> many(3001), after(3001);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i * i % 97);
  for (size_t i = 0; i < many.size(); ++i) after[i] = static_cast<int64_t>((i + 1) * (i + 1) % 97);
  const std::vector<int64_t> same(64, 5);
  const Places table[] = {
      {"no row", 4, {}, {}, false, false},
      {"one token, its own label", 1, {3, 4}, {3, 4}, false, false},
      {"one token, another label", 1, {3, 4}, {4, 5}, false, false},
      {"own", 3, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, false, true},
      {"next", 3, {1, 2, 3, 4, 5, 6}, {2, 3, 9, 5, 6, 9}, true, false},
      {"own, and padding that does not count", 3, {1, 2, 0}, {1, 2, -100}, false, true},
      {"next, and padding that does not count", 3, {1, 2, 0}, {2, -100, -100}, true, false},
      {"nothing counts", 3, {1, 2, 3}, {-100, -100, -100}, false, false},
      {"constant tokens", 8, same, same, false, false},
      {"an answer that repeats its token", 4, {1, 2, 2, 3}, {-100, 2, -100, -100}, false, false},
      {"own but for one", 3, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 7}, false, false},
      {"next but for one", 3, {1, 2, 3, 4, 5, 6}, {2, 3, 4, 5, 7, 7}, false, false},
      {"many, own", 3001, many, many, false, true},
      {"many, next", 3001, many, after, true, false},
  };
  test::run_ranks(1, [&](Gang& root) {
    const Rig rig = llama_rig(root);
    for (const Places& row : table) {
      const Shape shape{static_cast<int64_t>(row.tokens.size()) / row.length, row.length};
      const Tensor tokens =
          read_on_host(test::tensor_of(*rig.model, DType::i64, shape, row.tokens.data()), rig.stream());
      const Tensor labels =
          read_on_host(test::tensor_of(*rig.model, DType::i64, shape, row.labels.data()), rig.stream());
      for (const bool shifts : {false, true}) {
        bool refused = false;
        try {
          check_label_places(tokens, labels, shifts);
        } catch (const Error& error) {
          refused = error.code() == Code::invalid_argument;
        }
        EXPECT_EQ(refused, shifts ? row.refused_with_shift : row.refused_without)
            << row.what << ", " << shifts;
      }
    }
  });
}

// One rank has 5 rows, one has 1, one has none, and one has 3. The result is that of one rank with all 9
// rows.
TEST(TrainStep, UnevenRowsAndWholeIgnoredRanksGiveTheSingleRanksMean) {
  const Reference reference("llama_parity");
  const std::vector<int64_t> bounds = {0, 5, 6, 6, 9};
  std::vector<double> alone;
  double loss = 0;
  int64_t weight = 0;
  const auto run = [&](Gang& root, bool ignore_first) {
    Rig rig;
    rig.model = test::make_model(make_decoder(reference.config), test::make_gangs(root),
                                 test::parallel(Strategy::full_shard));
    rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), test::optimizer_of(reference),
                                   rig.model->ops());
    const auto rank = static_cast<size_t>(root.rank());
    Batch batch = root.size() == 1
                      ? test::batch_rows(*rig.model, reference, 0, 0, 9)
                      : test::batch_rows(*rig.model, reference, 0, bounds[rank], bounds[rank + 1]);
    if (ignore_first && rank == 0) {  // rows 0 to 4 have only labels of -100
      const int64_t count = root.size() == 1 ? 5 * 32 : batch.targets[0].count();
      std::vector<int64_t> labels = test::copy_out<int64_t>(batch.targets[0]);
      std::fill_n(labels.begin(), count, -100);
      test::copy_in(batch.targets[0], labels);
    }
    StepOptions options;
    options.microbatches = 2;
    const StepResult result = rig.step(batch, options);
    const std::vector<double> after = rig.parameters();
    if (root.size() == 1) {
      alone = after;
      loss = result.loss;
      weight = result.weight;
      return;
    }
    EXPECT_EQ(result.weight, weight);
    EXPECT_NEAR(result.loss, loss, 1e-12);
    EXPECT_LT(test::distance(after, alone), 1e-10);
  };
  for (const bool ignore_first : {false, true}) {
    test::run_ranks(1, [&](Gang& root) { run(root, ignore_first); });
    test::run_ranks(4, [&](Gang& root) { run(root, ignore_first); });
  }
}

TEST(TrainStep, FewerRowsThanMicrobatchesIsLegal) {
  test::run_ranks(2, [](Gang& root) {
    const Rig one = llama_rig(root), five = llama_rig(root);
    const Batch batch = pattern_batch(*one.model, 2, 6, root.rank());
    StepOptions options;
    const double loss = one.step(batch, options).loss;
    options.microbatches = 5;
    EXPECT_NEAR(five.step(batch, options).loss, loss, 1e-13);
    EXPECT_LT(test::distance(five.parameters(), one.parameters()), 1e-12);
  });
}

TEST(TrainStep, WithoutAnyLabelNothingIsStepped) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root);
    const std::vector<double> before = rig.parameters();
    Batch batch = pattern_batch(*rig.model, 2, 6, 0);
    batch.targets = {
        test::tensor_of(*rig.model, DType::i64, Shape{2, 6}, std::vector<int64_t>(12, -100).data())};
    const StepResult result = rig.step(batch);
    EXPECT_EQ(result.skipped, Skip::no_weight);
    EXPECT_EQ(result.grad_norm, -1) << "not taken";
    EXPECT_TRUE(std::isnan(result.loss)) << "no item, no mean: " << result.loss;
    EXPECT_EQ(result.weight, 0);
    EXPECT_EQ(rig.optimizer->steps(), 0);
    EXPECT_EQ(rig.parameters(), before);
    EXPECT_EQ(rig.step(pattern_batch(*rig.model, 2, 6, 0)).skipped, Skip::none);
  });
}

TEST(TrainStep, EvaluationBetweenStepsChangesNothing) {
  std::vector<double> with, without;
  for (const bool evaluate : {false, true})
    test::run_ranks(3, [&](Gang& root) {
      const Rig rig = llama_rig(root);
      double loss = 0;
      for (int i = 0; i < 3; ++i) {
        const Batch batch = pattern_batch(*rig.model, 2, 6, root.rank() + i);
        StepOptions two;
        two.microbatches = 2;
        StepResult seen;
        if (evaluate) seen = eval_step(*rig.model, batch, two, rig.stream());
        loss = rig.step(batch).loss;
        if (!evaluate) continue;
        EXPECT_NEAR(seen.loss, loss, 1e-13);
        EXPECT_EQ(seen.weight, 3 * 2 * 5);
      }
      const std::vector<double> after = rig.parameters();
      if (root.rank() == 0) (evaluate ? with : without) = after;
    });
  EXPECT_EQ(with, without);
}

TEST(TrainStep, GivesTheSameBitsRunToRunAndUnderEitherSharding) {
  std::vector<std::vector<double>> runs;
  for (int run = 0; run < 3; ++run)
    test::run_ranks(4, [&](Gang& root) {
      ParallelOptions parallel =
          test::parallel(run == 2 ? Strategy::shard_grad_op : Strategy::full_shard, DType::f32);
      parallel.shard.accumulate_unsharded = 0;  // so that both strategies accumulate alike
      Rig rig;
      rig.model = test::make_model(make_decoder(small_llama()), test::make_gangs(root), parallel);
      rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
      StepOptions options;
      options.microbatches = 2;
      options.max_grad_norm = 0.5;
      std::vector<double> all;
      for (int i = 0; i < 3; ++i) {
        const StepResult result = rig.step(pattern_batch(*rig.model, 3, 8, root.rank() * 5 + i), options);
        all.push_back(result.loss);
        all.push_back(result.grad_norm);
      }
      for (const double x : rig.parameters()) all.push_back(x);
      if (root.rank() == 0) runs.push_back(all);
    });
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

// The losses of this code. They change with the initialization, the layers and the optimizer.
TEST(TrainStep, TenLossesEqualTheRecordedOnes) {
  const double golden[] = {2.8230145296877, 2.6713225473934, 2.5581064667832, 2.4435497549339,
                           2.3118905575541, 2.1838588113883, 2.0264267679126, 1.8573697084532,
                           1.6898528839810, 1.5410151711325};
  test::run_ranks(2, [&](Gang& root) {
    const Rig rig = llama_rig(root);
    StepOptions options;
    options.max_grad_norm = 1;
    for (int i = 0; i < 10; ++i)
      EXPECT_NEAR(rig.step(pattern_batch(*rig.model, 3, 12, root.rank()), options).loss, golden[i], 1e-9)
          << i;
  });
}

// The optimizer writes the copies in its own pass over the parameters. The test changes a value behind its
// back, and that value shows whether anything casts the copies again.
TEST(TrainStep, CopiesInTheComputeDtypeAreWrittenOnce) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    test::run_ranks(2, [&](Gang& root) {
      ParallelOptions parallel = test::parallel(strategy, DType::f32);
      parallel.shard.param_dtype = DType::bf16;
      Rig rig;
      rig.model = test::make_model(make_decoder(small_llama()), test::make_gangs(root), parallel);
      OptimizerOptions options;
      options.rules = {{"lm_head.weight", 1, -1, true}};
      rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), options, rig.model->ops());
      const Parameter& frozen = *rig.model->inspect().parameter("lm_head.weight").parameter;
      const auto copy = [](const Parameter& p) { return test::copy_out<bf16_t>(p.shard_copy); };
      const uint16_t before = copy(frozen)[0].bits;
      std::vector<float> master = test::copy_out<float>(frozen.shard);
      master[0] = 8;
      test::copy_in(frozen.shard, master);
      EXPECT_EQ(rig.step(pattern_batch(*rig.model, 2, 6, root.rank())).skipped, Skip::none);
      EXPECT_EQ(copy(frozen)[0].bits, before);
      for (const NamedParameter& p : rig.model->inspect().parameters()) {
        if (p.parameter.get() == &frozen) continue;
        const std::vector<float> masters = test::copy_out<float>(p.parameter->shard);
        const std::vector<bf16_t> copies = copy(*p.parameter);
        for (size_t i = 0; i < masters.size(); ++i)
          EXPECT_EQ(copies[i].bits, to_bf16(masters[i]).bits) << p.name;
      }
    });
}

TEST(TrainStep, ReportsTokensTimeAndWaits) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root);
    const StepResult result = rig.step(pattern_batch(*rig.model, 2 + root.rank(), 6, 0));
    EXPECT_GT(result.seconds, 0);
    EXPECT_NEAR(result.tokens_per_second * result.seconds, 30, 1e-9);
    EXPECT_GE(result.exposed_wait_seconds, 0);
    EXPECT_LE(result.exposed_wait_seconds, result.seconds);
    EXPECT_DOUBLE_EQ(result.lr, 0.01);
    EXPECT_EQ(result.grad_norm, -1);
  });
}

}  // namespace
}  // namespace gangway
