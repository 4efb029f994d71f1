// What a step does besides learning: N, uneven data, refusals, skips, failures, the same bits again.
#include <limits>

#include "train/square_loss.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::error_of;
using test::Reference;
using test::SquareLoss;

LlamaConfig small_llama() {
  LlamaConfig config;
  config.vocab = 17;
  config.dim = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.ffn = 40;
  config.max_positions = 12;
  return config;
}

// Tokens of a repeating pattern; labels equal them, the library shifts.
Batch pattern_batch(Model& model, int64_t rows, int64_t length, int64_t start) {
  std::vector<int64_t> ids;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < length; ++s) ids.push_back((start + 3 * r + s * s) % 17);
  const Tensor tokens = test::tensor_of(model, DType::i64, Shape{rows, length}, ids.data());
  Batch batch;
  batch.inputs = {tokens};
  batch.targets = {tokens};
  return batch;
}

struct Rig {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  Stream& stream() const { return model->device().stream(); }
  StepResult step(const Batch& batch, const StepOptions& options = {}) const {
    return train_step(*model, *optimizer, batch, options, stream());
  }
  std::vector<double> parameters() const {
    std::vector<double> all;
    for (const NamedParameter& named : model->parameters())
      for (const double x : test::gathered(*model, *named.parameter)) all.push_back(x);
    return all;
  }
};

Rig llama_rig(Gang& root, Strategy strategy = Strategy::full_shard, DType master = DType::f64) {
  Rig rig;
  rig.model =
      test::make_model(make_llama(small_llama()), test::make_gangs(root), test::parallel(strategy, master));
  OptimizerOptions options;
  options.lr = 0.01;
  rig.optimizer = make_adamw(rig.model->parameters(), options, rig.model->ops());
  return rig;
}

TEST(TrainStep, LabelsAreShiftedByTheLibrary) {
  test::run_ranks(1, [](Gang& root) {
    const Rig shifts = llama_rig(root), shifted = llama_rig(root);
    const Batch batch = pattern_batch(*shifts.model, 3, 7, 0);
    Batch by_hand = batch;
    std::vector<int64_t> labels(batch.targets[0].data<int64_t>(), batch.targets[0].data<int64_t>() + 21);
    for (size_t row = 0; row < 3; ++row) {
      for (size_t s = 0; s < 6; ++s) labels[row * 7 + s] = labels[row * 7 + s + 1];
      labels[row * 7 + 6] = -100;
    }
    by_hand.targets = {test::tensor_of(*shifted.model, DType::i64, Shape{3, 7}, labels.data())};
    by_hand.shifted = true;
    const StepResult a = shifts.step(batch), b = shifted.step(by_hand);
    EXPECT_EQ(a.weight, 18);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(shifts.parameters(), shifted.parameters());
    EXPECT_EQ(batch.targets[0].data<int64_t>()[0], 0) << "the caller's labels stay as they were";
  });
}

// One rank has 5 rows, one 1, one none at all; the sum is that of one rank with all six.
TEST(TrainStep, UnevenRowsAndWholeIgnoredRanksGiveTheSingleRanksMean) {
  const Reference reference("llama_parity");
  const std::vector<int64_t> bounds = {0, 5, 6, 6, 9};
  std::vector<double> alone;
  double loss = 0;
  int64_t weight = 0;
  const auto run = [&](Gang& root, bool ignore_first) {
    Rig rig;
    rig.model = test::make_model(make_llama(reference.config), test::make_gangs(root),
                                 test::parallel(Strategy::full_shard));
    rig.optimizer = make_adamw(rig.model->parameters(), test::optimizer_of(reference), rig.model->ops());
    const auto rank = static_cast<size_t>(root.rank());
    Batch batch = root.size() == 1
                      ? test::batch_rows(*rig.model, reference, 0, 0, 9)
                      : test::batch_rows(*rig.model, reference, 0, bounds[rank], bounds[rank + 1]);
    if (ignore_first && rank == 0) {  // rows 0 to 4: all labels -100
      const int64_t count = root.size() == 1 ? 5 * 32 : batch.targets[0].count();
      std::fill_n(batch.targets[0].data<int64_t>(), count, -100);
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
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.why_skipped, "no item of the batch counts (N = 0)");
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.weight, 0);
    EXPECT_EQ(rig.optimizer->steps(), 0);
    EXPECT_EQ(rig.parameters(), before);
    EXPECT_FALSE(rig.step(pattern_batch(*rig.model, 2, 6, 0)).skipped);
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
      parallel.shard.accumulate_unsharded = 0;  // the same accumulation
      Rig rig;
      rig.model = test::make_model(make_llama(small_llama()), test::make_gangs(root), parallel);
      rig.optimizer = make_adamw(rig.model->parameters(), {}, rig.model->ops());
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

// Frozen from this code; a change of initialisation, layers or optimizer shows here.
TEST(TrainStep, TenGoldenLosses) {
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

// --- refusals
// -----------------------------------------------------------------------------------------------------

struct Refusal {
  const char* what;
  void (*change)(Model&, Batch&, StepOptions&);  // on rank 1 alone
  const char* words;
};

const Refusal kRefusals[] = {
    {"microbatches", [](Model&, Batch&, StepOptions& o) { o.microbatches = 0; }, "step.microbatches = 0"},
    {"norm", [](Model&, Batch&, StepOptions& o) { o.max_grad_norm = -1; }, "step.max_grad_norm = -1"},
    {"norm type", [](Model&, Batch&, StepOptions& o) { o.norm_type = 0; }, "step.norm_type = 0"},
    {"scale", [](Model&, Batch&, StepOptions& o) { o.scale = 2; }, "scale = 2"},
    {"no input", [](Model&, Batch& b, StepOptions&) { b.inputs.clear(); }, "batch.inputs is empty"},
    {"absent", [](Model&, Batch& b, StepOptions&) { b.targets[0] = Tensor(); }, "batch.targets[0] is absent"},
    {"rows differ", [](Model&, Batch& b, StepOptions&) { b.targets[0] = b.targets[0].slice(0, 0, 1); },
     "batch.targets[0] has 1 rows, inputs[0] has 2"},
    {"strided", [](Model&, Batch& b, StepOptions&) { b.inputs[0] = b.inputs[0].slice(1, 0, 3); },
     "not contiguous"},
    {"length differs",
     [](Model&, Batch& b, StepOptions&) {
       b.targets[0] = b.targets[0].reshape(Shape{2, 3, 2});
     },
     "labels are i64 [2, 6] like the tokens"},
    {"too long", [](Model& m, Batch& b, StepOptions&) { b = pattern_batch(m, 2, 13, 0); },
     "a sequence of 13 tokens is over max_positions = 12"},
    {"no length", [](Model& m, Batch& b, StepOptions&) { b = pattern_batch(m, 2, 0, 0); },
     "its sequences are empty"},
    {"token outside", [](Model&, Batch& b, StepOptions&) { b.inputs[0].data<int64_t>()[3] = 17; },
     "id 17, outside [0, 17)"},
    {"token -100", [](Model&, Batch& b, StepOptions&) { b.inputs[0].data<int64_t>()[3] = -100; },
     "id -100, outside"},
    {"label outside",
     [](Model& m, Batch& b, StepOptions&) {
       b.targets[0] = test::tensor_of(m, DType::i64, Shape{2, 6}, b.targets[0].data<int64_t>());
       b.targets[0].data<int64_t>()[4] = -1;
     },
     "batch.targets[0] has id -1"},
    {"weight", [](Model&, Batch& b, StepOptions&) { b.weight = -2; }, "batch.weight = -2"},
    {"wrong weight", [](Model&, Batch& b, StepOptions&) { b.weight = 11; },
     "batch.weight = 11, but 10 labels count"},
    {"targets lack", [](Model&, Batch& b, StepOptions&) { b.targets.clear(); },
     "takes one input (tokens) and one target"},
};

TEST(TrainStep, OneRanksRefusalComesBackOnAllAndTheGangWorksOn) {
  test::run_ranks(3, [](Gang& root) {
    const Rig rig = llama_rig(root);
    const std::vector<double> before = rig.parameters();
    for (const Refusal& refusal : kRefusals) {
      for (const bool evaluate : {false, true}) {
        if (evaluate && std::string_view(refusal.what) == "scale") continue;
        Batch batch = pattern_batch(*rig.model, 2, 6, root.rank());
        StepOptions options;
        if (root.rank() == 1) refusal.change(*rig.model, batch, options);
        const Error error = error_of([&] {
          if (evaluate)
            eval_step(*rig.model, batch, options, rig.stream());
          else
            rig.step(batch, options);
        });
        EXPECT_EQ(error.code(), Code::invalid_argument) << refusal.what << ": " << error.message();
        EXPECT_NE(error.message().find(refusal.words), std::string::npos)
            << refusal.what << ": " << error.message();
      }
    }
    EXPECT_EQ(rig.parameters(), before);
    EXPECT_FALSE(rig.step(pattern_batch(*rig.model, 2, 6, root.rank())).skipped);
  });
}

TEST(TrainStep, TheLowestRanksRefusalIsTheOneThatAllSee) {
  test::run_ranks(4, [](Gang& root) {
    const Rig rig = llama_rig(root);
    StepOptions options;
    if (root.rank() >= 2) options.microbatches = -root.rank();
    const Error error = error_of([&] { rig.step(pattern_batch(*rig.model, 2, 6, 0), options); });
    EXPECT_NE(error.message().find("step.microbatches = -2"), std::string::npos) << error.message();
  });
}

TEST(TrainStep, DifferentOptionsAreAMismatchOnAllRanks) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root);
    const Batch batch = pattern_batch(*rig.model, 2, 6, 0);
    StepOptions options;
    options.microbatches = 1 + root.rank();
    const Error error = error_of([&] { rig.step(batch, options); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_NE(error.message().find("microbatches 2"), std::string::npos) << error.message();
    const Error calls = error_of([&] {
      if (root.rank() == 0)
        rig.step(batch);
      else
        eval_step(*rig.model, batch, {}, rig.stream());
    });
    EXPECT_EQ(calls.code(), Code::mismatch) << calls.message();
    EXPECT_FALSE(rig.step(batch).skipped);
  });
}

TEST(TrainStep, ACallersOwnRefusalJoinsTheCheckPhase) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root);
    std::optional<Error> refusal;
    if (root.rank() == 1) refusal = Error(Code::not_supported, "a view of no known kind");
    const Error error = error_of([&] {
      train_step(*rig.model, *rig.optimizer, pattern_batch(*rig.model, 2, 6, 0), {}, rig.stream(), refusal);
    });
    EXPECT_EQ(error.code(), Code::not_supported);
    EXPECT_NE(error.message().find("a view of no known kind"), std::string::npos);
    EXPECT_FALSE(rig.step(pattern_batch(*rig.model, 2, 6, 0)).skipped);
  });
}

TEST(TrainStep, NeedsStorageAndItsOwnOptimizer) {
  test::run_ranks(1, [](Gang& root) {
    const Rig rig = llama_rig(root), other = llama_rig(root);
    Model bare(make_llama(small_llama()), test::make_gangs(root));
    const Batch batch = pattern_batch(*rig.model, 2, 6, 0);
    const Error early = error_of([&] { train_step(bare, *rig.optimizer, batch, {}, rig.stream()); });
    EXPECT_EQ(early.code(), Code::invalid_state);
    EXPECT_NE(early.message().find("materialize"), std::string::npos);
    const Error foreign =
        error_of([&] { train_step(*rig.model, *other.optimizer, batch, {}, rig.stream()); });
    EXPECT_EQ(foreign.code(), Code::invalid_argument);
  });
}

// --- a model of one's own
// -------------------------------------------------------------------------------------------

Rig square_rig(Gang& root, const std::shared_ptr<SquareLoss>& loss,
               Strategy strategy = Strategy::full_shard) {
  Rig rig;
  rig.model = test::make_model(loss->module(), test::make_gangs(root), test::parallel(strategy));
  OptimizerOptions options;
  options.lr = 0.25;
  rig.optimizer = make_sgd(rig.model->parameters(), options, rig.model->ops());
  return rig;
}

TEST(TrainStep, ACustomLossTrainsByItsFormula) {
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    test::run_ranks(3, [&](Gang& root) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = square_rig(root, loss, strategy);
      test::SquareReference reference(test::gathered(*rig.model, *rig.model->parameters()[0].parameter));
      for (int step = 0; step < 3; ++step) {
        double expected = 0;
        for (int r = 0; r < 3; ++r) expected += reference.add(SquareLoss::rows(r, step));
        StepOptions options;
        options.microbatches = 2;
        const StepResult result = rig.step(loss->batch(*rig.model, root.rank(), step), options);
        EXPECT_EQ(result.weight, reference.weight());
        EXPECT_NEAR(result.loss, expected / static_cast<double>(reference.weight()), 1e-13);
        reference.step(0.25);
        EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
      }
    });
}

TEST(TrainStep, AWeightThatDiffersFromTheBatchsIsRefusedOnAllRanks) {
  test::run_ranks(3, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = square_rig(root, loss);
    const std::vector<double> before = rig.parameters();
    loss->wrong_weight = root.rank() == 1;
    const Error error = error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0)); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
    EXPECT_NE(error.message().find("the model's loss says weight 100, the batch has 3"), std::string::npos)
        << error.message();
    EXPECT_EQ(rig.parameters(), before);
    loss->wrong_weight = false;
    test::SquareReference reference(before);  // nothing was left behind in the gradients
    for (int r = 0; r < 3; ++r) reference.add(SquareLoss::rows(r, 0));
    rig.step(loss->batch(*rig.model, root.rank(), 0));
    reference.step(0.25);
    EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
  });
}

TEST(TrainStep, NonFiniteGradientsOfOneRankSkipTheStepOnAll) {
  for (const double max_grad_norm : {0.0, 1.0})
    for (const double norm_type : {2.0, std::numeric_limits<double>::infinity()})
      test::run_ranks(3, [&](Gang& root) {
        const auto loss = std::make_shared<SquareLoss>();
        const Rig rig = square_rig(root, loss);
        const std::vector<double> before = rig.parameters();
        StepOptions options;
        options.max_grad_norm = max_grad_norm;
        options.norm_type = norm_type;
        loss->poison = root.rank() == 2;
        const StepResult result = rig.step(loss->batch(*rig.model, root.rank(), 0), options);
        EXPECT_TRUE(result.skipped) << max_grad_norm << " " << norm_type;
        EXPECT_EQ(result.why_skipped, "gradients are not finite");
        EXPECT_EQ(result.step, 0);
        EXPECT_EQ(rig.parameters(), before);
        loss->poison = false;
        EXPECT_FALSE(rig.step(loss->batch(*rig.model, root.rank(), 0), options).skipped);
        for (const double x : rig.parameters()) EXPECT_TRUE(std::isfinite(x));
      });
}

TEST(TrainStep, ThePowerOfTheNormIsTheCallersChoice) {
  test::run_ranks(2, [](Gang& root) {
    for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = square_rig(root, loss);
      test::SquareReference reference(rig.parameters());
      for (int r = 0; r < 2; ++r) reference.add(SquareLoss::rows(r, 0));
      StepOptions options;
      options.max_grad_norm = 0.5;
      options.norm_type = p;
      EXPECT_NEAR(rig.step(loss->batch(*rig.model, root.rank(), 0), options).grad_norm, reference.norm(p),
                  1e-13);
      reference.step(0.25, std::min(1.0, 0.5 / (reference.norm(p) + 1e-6)));
      EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
    }
  });
}

TEST(TrainStep, AFailureInOneRanksModuleReachesEveryRank) {
  for (const bool in_backward : {false, true})
    test::run_ranks(3, [&](Gang& root) {
      const auto loss = std::make_shared<SquareLoss>();
      const Rig rig = square_rig(root, loss);
      if (root.rank() == 1) (in_backward ? loss->fail_backward : loss->fail_forward) = true;
      const Error error = error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0)); });
      EXPECT_NE(error.message().find("the square broke"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("rank 1"), std::string::npos) << error.message();
      EXPECT_EQ(error.code(), root.rank() == 1 ? Code::caller : Code::aborted);
      EXPECT_TRUE(root.error().has_value());
      EXPECT_TRUE(rig.model->gangs().dp()->error().has_value());
      EXPECT_NE(error_of([&] { rig.step(loss->batch(*rig.model, root.rank(), 0)); }).code(), Code::ok);
    });
}

// Seeded with 1 by the caller's own loop, scaled by the step.
TEST(OptimizerStep, ScalesClipsStepsAndEmptiesTheGradients) {
  test::run_ranks(2, [](Gang& root) {
    const auto loss = std::make_shared<SquareLoss>();
    const Rig rig = square_rig(root, loss);
    test::SquareReference reference(rig.parameters());
    for (int step = 0; step < 2; ++step) {
      for (int r = 0; r < 2; ++r) reference.add(SquareLoss::rows(r, step));
      Context ctx = rig.model->context(rig.stream());
      ctx.training = true;
      const Tensor seed = test::tensor_of(*rig.model, DType::f64, Shape{1}, std::vector<double>{1}.data());
      ctx.loss_seed = seed;
      const Batch batch = loss->batch(*rig.model, root.rank(), step);
      const std::vector<Tensor> inputs = {batch.inputs[0], batch.targets[0]};
      Frame& frame = rig.model->frame(0);
      frame.reset();
      rig.model->forward(ctx, inputs, &frame);
      rig.model->backward(ctx, {}, frame);
      frame.reset();
      StepOptions options;
      options.scale = 1.0 / static_cast<double>(reference.weight());
      options.max_grad_norm = 0.5;
      const StepResult result = optimizer_step(*rig.model, *rig.optimizer, options, rig.stream());
      EXPECT_NEAR(result.grad_norm, reference.norm(2), 1e-13);
      EXPECT_EQ(result.step, step + 1);
      reference.step(0.25, std::min(1.0, 0.5 / (reference.norm(2) + 1e-6)));
      EXPECT_LT(test::distance(rig.parameters(), reference.values()), 1e-13);
    }
  });
}

TEST(OptimizerStep, RefusalsAreAgreed) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root);
    StepOptions options;
    if (root.rank() == 1) options.scale = std::numeric_limits<double>::quiet_NaN();
    const Error error = error_of([&] { optimizer_step(*rig.model, *rig.optimizer, options, rig.stream()); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("step.scale = nan"), std::string::npos) << error.message();
    EXPECT_FALSE(root.error().has_value());
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
