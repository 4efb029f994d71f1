// Refusals of a step: every rank gets the refusal of the lowest rank, and the gang goes on working.
#include <limits>

#include "base/expect_error.h"
#include "parallel/collective_call.h"
#include "parallel/shard_group.h"
#include "train/rig.h"

namespace gangway {
namespace {

using test::error_of;
using test::llama_rig;
using test::pattern_batch;
using test::Rig;
using test::small_llama;

using Change = void (*)(Model&, Batch&, StepOptions&);

struct Refusal {
  const char* what;
  Change change;  // made on rank 1 only
  const char* words;
};

void set(const Tensor& ids, size_t at, int64_t id) {
  std::vector<int64_t> all = test::copy_out<int64_t>(ids);
  all[at] = id;
  test::copy_in(ids, all);
}

const Refusal kRefusals[] = {
    {"microbatches", [](Model&, Batch&, StepOptions& o) { o.microbatches = 0; }, "step.microbatches = 0"},
    {"norm", [](Model&, Batch&, StepOptions& o) { o.max_grad_norm = -1; }, "step.max_grad_norm = -1"},
    {"norm type", [](Model&, Batch&, StepOptions& o) { o.norm_type = 0; }, "step.norm_type = 0"},
    {"great norm type", [](Model&, Batch&, StepOptions& o) { o.norm_type = 65; }, "step.norm_type = 65"},
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
     "labels are i64 [2, 3, 2] and tokens i64 [2, 6]"},
    {"too long", [](Model& m, Batch& b, StepOptions&) { b = pattern_batch(m, 2, 13, 0); },
     "sequences of 13 tokens are longer than max_position_embeddings 12"},
    {"no length", [](Model& m, Batch& b, StepOptions&) { b = pattern_batch(m, 2, 0, 0); },
     "tokens are i64 [2, 0]"},
    {"token outside", [](Model&, Batch& b, StepOptions&) { set(b.inputs[0], 3, 17); },
     "token id 17 is outside the vocabulary of 17"},
    {"token -100", [](Model&, Batch& b, StepOptions&) { set(b.inputs[0], 3, -100); },
     "token id -100 is outside"},
    {"label outside",
     [](Model& m, Batch& b, StepOptions&) {
       b.targets[0] =
           test::tensor_of(m, DType::i64, Shape{2, 6}, test::copy_out<int64_t>(b.targets[0]).data());
       set(b.targets[0], 4, -1);
     },
     "label -1 is outside the vocabulary"},
    {"weight", [](Model&, Batch& b, StepOptions&) { b.weight = -2; }, "batch.weight = -2"},
    {"wrong weight", [](Model&, Batch& b, StepOptions&) { b.weight = 11; },
     "batch.weight = 11, but 10 labels count"},
    {"labels that are the tokens", [](Model&, Batch& b, StepOptions&) { b.shift_labels = false; },
     "each of the 12 labels of targets[0] that count is its own token"},
    {"labels that are shifted twice",
     [](Model& m, Batch& b, StepOptions&) {
       std::vector<int64_t> next = test::copy_out<int64_t>(b.inputs[0]);
       std::rotate(next.begin(), next.begin() + 1, next.end());
       b.targets[0] = test::tensor_of(m, DType::i64, Shape{2, 6}, next.data());
     },
     "each of the 10 labels of targets[0] that count is the next token already"},
    {"floats alone",
     [](Model& m, Batch& b, StepOptions&) {
       b.inputs[0] = test::tensor_of(m, DType::f32, Shape{2, 6}, std::vector<float>(12).data());
       b.targets.clear();
     },
     "tokens are f32 [2, 6]"},
};

// Runs a step or an evaluation with a wrong argument on rank 1, and expects the refusal on every rank.
void expect_refusal(Gang& root, const Rig& rig, Batch batch, const Refusal& refusal, bool evaluate) {
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
  EXPECT_FALSE(root.error().has_value()) << refusal.what;
}

TEST(TrainStep, OneRanksRefusalComesBackOnAllAndTheGangWorksOn) {
  test::run_ranks(3, [](Gang& root) {
    const Rig rig = llama_rig(root);
    const std::vector<double> before = rig.parameters();
    for (const Refusal& refusal : kRefusals)
      for (const bool evaluate : {false, true}) {
        if (evaluate && std::string_view(refusal.what) == "scale") continue;
        expect_refusal(root, rig, pattern_batch(*rig.model, 2, 6, root.rank()), refusal, evaluate);
      }
    EXPECT_EQ(rig.parameters(), before);
    EXPECT_EQ(rig.step(pattern_batch(*rig.model, 2, 6, root.rank())).skipped, Skip::none);
  });
}

// Batches that SquareLoss does not take, and arguments that no model takes.
const Refusal kSquareRefusals[] = {
    {"width",
     [](Model&, Batch& b, StepOptions&) {
       b.inputs[0] = b.inputs[0].reshape(Shape{3, 1, 5});
     },
     "Square takes f64 [rows, 5], not f64 [3, 1, 5]"},
    {"dtype",
     [](Model& m, Batch& b, StepOptions&) {
       b.inputs[0] = test::tensor_of(m, DType::f32, Shape{3, 5}, std::vector<float>(15).data());
     },
     "Square takes f64 [rows, 5], not f32 [3, 5]"},
    {"inputs", [](Model&, Batch& b, StepOptions&) { b.targets.clear(); }, "takes 2 inputs, got 1"},
    {"targets lack",
     [](Model&, Batch& b, StepOptions&) {
       b.targets.clear();
       b.weight = -1;
     },
     "there is no target"},
    {"labels of floats", [](Model&, Batch& b, StepOptions&) { b.shift_labels = true; },
     "targets[0] is f64, but labels are i64"},
    {"labels without a sequence",
     [](Model& m, Batch& b, StepOptions&) {
       b.targets[0] = test::tensor_of(m, DType::i64, Shape{3}, std::vector<int64_t>(3).data());
       b.shift_labels = true;
     },
     "batch.shift_labels is 1, but the labels are i64 [3]"},
};

TEST(TrainStep, WhatACustomModuleDoesNotTakeComesBackOnAllAndTheGangWorksOn) {
  test::run_ranks(3, [](Gang& root) {
    const auto loss = std::make_shared<test::SquareLoss>();
    const Rig rig = test::square_rig(root, loss);
    const std::vector<double> before = rig.parameters();
    for (const Refusal& refusal : kSquareRefusals)
      for (const bool evaluate : {false, true})
        expect_refusal(root, rig, loss->batch(*rig.model, root.rank(), 0), refusal, evaluate);
    EXPECT_EQ(rig.parameters(), before);
    EXPECT_EQ(rig.step(loss->batch(*rig.model, root.rank(), 0)).skipped, Skip::none);
  });
}

TEST(TrainStep, AModelWithoutALossIsRefusedAndTheGangWorksOn) {
  test::run_ranks(2, [](Gang& root) {
    Rig rig;
    rig.model = test::make_model(make_sequential({make_linear(2, 3, false), make_linear(3, 1, false)}),
                                 test::make_gangs(root), test::parallel(Strategy::full_shard));
    rig.optimizer = make_optimizer("sgd", rig.model->inspect().parameters(), {}, rig.model->ops());
    Batch batch;
    batch.inputs = {test::tensor_of(*rig.model, DType::f64, Shape{1, 2}, std::vector<double>(2).data())};
    batch.weight = 1;
    const Refusal no_loss = {"no loss", [](Model&, Batch&, StepOptions&) {}, "the model gives 1 outputs"};
    for (const bool evaluate : {false, true}) expect_refusal(root, rig, batch, no_loss, evaluate);
    root.barrier();
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
    EXPECT_EQ(rig.step(batch).skipped, Skip::none);
  });
}

// An option of the optimizer or of the step that differs on the last rank.
struct Differing {
  void (*change)(OptimizerOptions&, StepOptions&);
  const char* of_rank_0;
  const char* of_other;
};

const Differing kDiffering[] = {
    {[](OptimizerOptions& o, StepOptions&) { o.lr = 0.01; }, "lr 0.001", "lr 0.01"},
    {[](OptimizerOptions& o, StepOptions&) { o.lr = 0.0010000000000000002; }, "lr 0.001",
     "lr 0.0010000000000000002"},
    {[](OptimizerOptions& o, StepOptions&) { o.weight_decay = 0.1; }, "weight_decay 0", "weight_decay 0.1"},
    {[](OptimizerOptions& o, StepOptions&) { o.hyperparameters["beta1"] = 0.8; }, "beta1 0.9", "beta1 0.8"},
    {[](OptimizerOptions& o, StepOptions&) { o.hyperparameters["beta2"] = 0.99; }, "beta2 0.999",
     "beta2 0.99"},
    {[](OptimizerOptions& o, StepOptions&) { o.hyperparameters["eps"] = 1e-6; }, "eps 1e-08", "eps 1e-06"},
    {[](OptimizerOptions& o, StepOptions&) { o.hyperparameters["moment_dtype"] = DType::bf16; },
     "moment_dtype f32", "moment_dtype bf16"},
    {[](OptimizerOptions& o, StepOptions&) {
       o.schedule = {LrSchedule::Kind::linear, 0, 10, 0};
     },
     "schedule constant", "schedule linear"},
    {[](OptimizerOptions& o, StepOptions&) { o.schedule.warmup = 2; }, "warmup_steps 0", "warmup_steps 2"},
    {[](OptimizerOptions& o, StepOptions&) { o.rules.push_back(o.rules[0]); }, "steps 0",
     "rules[1].pattern model.norm.*"},
    {[](OptimizerOptions& o, StepOptions&) { o.rules[0].pattern = "lm_head.*"; },
     "rules[0].pattern model.norm.*", "rules[0].pattern lm_head.*"},
    {[](OptimizerOptions& o, StepOptions&) { o.rules[0].frozen = true; }, "rules[0].frozen off",
     "rules[0].frozen on"},
    {[](OptimizerOptions& o, StepOptions&) { o.rules[0].lr_scale = 0.5; }, "rules[0].lr_scale 1",
     "rules[0].lr_scale 0.5"},
    {[](OptimizerOptions& o, StepOptions&) { o.loss_scale.fixed = 4; }, "loss_scale 1", "loss_scale 4"},
    {[](OptimizerOptions&, StepOptions& o) { o.max_grad_norm = 1.0000000000000002; }, "max_grad_norm 1",
     "max_grad_norm 1.0000000000000002"},
    {[](OptimizerOptions&, StepOptions& o) { o.check_finite = false; }, "check_finite on",
     "check_finite off"},
};

std::string mismatch(const char* call, const Gang& root, const Differing& differing) {
  return text(call, ": rank 0 has ", differing.of_rank_0, ", rank ", root.size() - 1, " has ",
              differing.of_other, "; give all ranks the same");
}

TEST(DifferingRanks, OptimizersAndOptionsOfAStepAreMismatchesWithBothValues) {
  for (const int ranks : {2, 4})
    test::run_ranks(ranks, [](Gang& root) {
      Rig rig = llama_rig(root, Strategy::no_shard);
      const std::vector<double> before = rig.parameters();
      const Batch batch = pattern_batch(*rig.model, 2, 6, 0);
      for (const Differing& differing : kDiffering) {
        OptimizerOptions options;
        options.rules = {{.pattern = "model.norm.*"}};
        StepOptions step;
        step.max_grad_norm = 1;
        if (root.rank() == root.size() - 1) differing.change(options, step);
        rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), options, rig.model->ops());
        test::expect_error(Code::mismatch, mismatch("train_step", root, differing),
                           [&] { rig.step(batch, step); });
        test::expect_error(Code::mismatch, mismatch("optimizer_step", root, differing),
                           [&] { optimizer_step(*rig.model, *rig.optimizer, step, rig.stream()); });
      }
      EXPECT_EQ(rig.parameters(), before);
      rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), {}, rig.model->ops());
      EXPECT_EQ(rig.step(batch).skipped, Skip::none);
    });
}

TEST(DifferingRanks, AnLrThatOneRankSetsOrAStepThatOneRankTookIsReported) {
  test::run_ranks(3, [](Gang& root) {
    const Rig rig = llama_rig(root, Strategy::no_shard);
    const Batch batch = pattern_batch(*rig.model, 2, 6, 0);
    rig.step(batch);
    if (root.rank() == 1) rig.optimizer->set_lr(0.5);
    test::expect_error(Code::mismatch,
                       "train_step: rank 0 has lr 0.01, rank 1 has lr 0.5; give all ranks the same",
                       [&] { rig.step(batch); });
    rig.optimizer->set_lr(0.5);
    if (root.rank() == 2) rig.optimizer->step(1, 1, rig.stream());
    test::expect_error(Code::mismatch,
                       "train_step: rank 0 has steps 1, rank 2 has steps 2; give all ranks the same",
                       [&] { rig.step(batch); });
  });
}

TEST(DifferingRanks, AdamwOnOneRankAndSgdOnAnotherIsReported) {
  test::run_ranks(2, [](Gang& root) {
    Rig rig = llama_rig(root, Strategy::no_shard);
    if (root.rank() == 1)
      rig.optimizer = make_optimizer("sgd", rig.model->inspect().parameters(), {}, rig.model->ops());
    test::expect_error(
        Code::mismatch,
        "train_step: rank 0 has optimizer adamw, rank 1 has optimizer sgd; give all ranks the same",
        [&] { rig.step(pattern_batch(*rig.model, 2, 6, 0)); });
  });
}

TEST(DifferingRanks, ADifferentMaximumNormIsReported) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root, Strategy::no_shard);
    test::expect_error(
        Code::mismatch,
        "clip_grad_norm: rank 0 has max_norm 1, rank 1 has max_norm 2; give all ranks the same",
        [&] { rig.model->run().clip_gradients(1 + root.rank(), 2, rig.stream()); });
  });
}

TEST(TrainStep, ACallersOwnRefusalJoinsTheCheckPhase) {
  test::run_ranks(2, [](Gang& root) {
    const Rig rig = llama_rig(root);
    const Error error = error_of([&] {
      CollectiveCall(rig.model->gangs(), "train_step").read([&] {
        if (root.rank() == 1) fail(Code::not_supported, "a view of no known kind");
      });
      train_step(*rig.model, rig.optimizer.get(), pattern_batch(*rig.model, 2, 6, 0), {}, rig.stream());
    });
    EXPECT_EQ(error.code(), Code::not_supported);
    EXPECT_NE(error.message().find("a view of no known kind"), std::string::npos);
    EXPECT_EQ(rig.step(pattern_batch(*rig.model, 2, 6, 0)).skipped, Skip::none);
  });
}

TEST(TrainStep, NeedsStorageAndItsOwnOptimizer) {
  test::run_ranks(1, [](Gang& root) {
    const Rig rig = llama_rig(root), other = llama_rig(root);
    Model bare(make_decoder(small_llama()), test::make_gangs(root));
    const Batch batch = pattern_batch(*rig.model, 2, 6, 0);
    const Error early = error_of([&] { train_step(bare, rig.optimizer.get(), batch, {}, rig.stream()); });
    EXPECT_EQ(early.code(), Code::invalid_state);
    EXPECT_NE(early.message().find("materialize"), std::string::npos);
    const Error foreign =
        error_of([&] { train_step(*rig.model, other.optimizer.get(), batch, {}, rig.stream()); });
    EXPECT_EQ(foreign.code(), Code::invalid_argument);
  });
}

TEST(TrainStep, AModelOfShardGroupsIsRefusedAndTheGangWorksOn) {
  test::run_ranks(2, [](Gang& root) {
    const auto group = make_shard_group(test::make_gangs(root), "g",
                                        {{.name = "w", .shape = Shape{3}, .init = Init::ones()}}, {}, 1);
    const auto model = model_from_groups({group});
    const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), {}, model->ops());
    const double x[] = {1, 2};
    Batch batch;
    batch.inputs = {test::tensor_of(*model, DType::f64, Shape{2, 1}, x)};
    batch.weight = 2;
    for (const bool evaluate : {false, true}) {
      const Error error = error_of([&] {
        if (evaluate)
          eval_step(*model, batch, {}, model->device().stream());
        else
          train_step(*model, optimizer.get(), batch, {}, model->device().stream());
      });
      EXPECT_EQ(error.code(), Code::invalid_state);
      EXPECT_NE(error.message().find("computes nothing"), std::string::npos) << error.message();
    }
    root.barrier();
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

}  // namespace
}  // namespace gangway
