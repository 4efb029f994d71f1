// Training steps of pipelines, against the reference files and against one rank.
#include "train/pipeline.h"

#include <functional>

#include "base/error_of.h"
#include "parallel/pipeline/communication.h"
#include "train/rig.h"

namespace gangway::test {
namespace {

template <typename Call>
void expect_refusal(Code code, const char* words, Call&& call) {
  const Error error = error_of(call);
  EXPECT_STREQ(name(error.code()), name(code)) << error.message();
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

// parity_test compares all five steps of one rank with the reference. Cases here need five steps only if they
// differ much from one rank.
void expect_cases(const char* file, std::vector<PipelineCase> cases, int64_t steps,
                  DType master = DType::f64) {
  const Reference reference(file);
  for (PipelineCase& c : cases) {
    c.steps = steps;
    run_ranks(c.ranks(), [&](Gang& root) { expect_reference(root, reference, c, master); });
  }
}

TEST(Pipeline, EveryScheduleOnTwoRanksEqualsTheReference) {
  std::vector<PipelineCase> cases;
  for (const std::string& name : schedule_names()) cases.push_back({name, 2, 4});
  expect_cases("llama_parity", cases, 2);
}

TEST(Pipeline, EveryScheduleOnFourRanksEqualsTheReference) {
  std::vector<PipelineCase> cases;
  for (const std::string& name : schedule_names()) cases.push_back({name, 4, 8});
  expect_cases("llama_parity", cases, 5);
}

TEST(Pipeline, ATiedModelOnTwoRanksEqualsTheReference) {
  expect_cases("llama_parity_tied", {{"zb-h1", 2, 4}}, 1);
}

TEST(Pipeline, EightRanksEqualTheReference) { expect_cases("llama_parity", {{"zb-h1", 8, 8}}, 1); }

TEST(Pipeline, WithShardsAndReplicasEqualsTheReference) {
  std::vector<PipelineCase> cases;
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard}) {
    PipelineCase c{"1f1b", 2, 4, 2};
    c.strategy = strategy;
    cases.push_back(c);
  }
  cases.push_back({"interleaved-1f1b", 2, 4, 2, 2});
  cases.push_back({"zbv", 2, 4, 2});
  cases.push_back({"zb-h1", 2, 4, 1, 2});
  expect_cases("llama_parity", cases, 2);
}

TEST(Pipeline, WithTensorAndContextParallelismEqualsTheReference) {
  std::vector<PipelineCase> cases;
  for (const char* schedule : {"1f1b", "zbv"}) {
    PipelineCase c{schedule, 2, 4};
    c.tp = 2;
    cases.push_back(c);
    c.sequence_parallel = true;
    cases.push_back(c);
  }
  PipelineCase all{"zb-h1", 2, 4, 2};
  all.tp = 2;
  cases.push_back(all);
  PipelineCase context{"1f1b", 2, 4};
  context.cp = 2;
  cases.push_back(context);
  context.tp = 2;
  cases.push_back(context);
  expect_cases("llama_parity", cases, 5);
}

TEST(Pipeline, InF32EqualsTheReference) {
  expect_cases("llama_parity", {{"zbv", 2, 4, 2}, {"1f1b", 4, 8}}, 5, DType::f32);
}

TEST(Pipeline, FewerMicrobatchesThanRanksAndUnevenOnesEqualTheReference) {
  expect_cases(
      "llama_parity",
      {{"1f1b", 4, 1}, {"zb-h1", 4, 2}, {"zbv", 4, 3}, {"gpipe", 2, 5}, {"zb-h2", 2, 7}, {"zbv", 2, 5, 2}},
      2);
}

TEST(Pipeline, RecomputationEqualsTheReference) {
  std::vector<PipelineCase> cases;
  for (const RecomputeKind kind : {RecomputeKind::full, RecomputeKind::selective, RecomputeKind::every})
    for (const char* schedule : {"zbv", "1f1b"}) {
      PipelineCase c{schedule, 2, 4};
      c.recompute = kind;
      cases.push_back(c);
    }
  expect_cases("llama_parity", cases, 1);
}

TEST(Pipeline, ATiedEmbeddingIsOneParameter) {
  expect_cases("llama_parity_tied",
               {{"1f1b", 2, 4},
                {"zb-h1", 4, 4},
                {"zbv", 2, 4},  // the first and the last stage are on rank 0
                {"zbv", 2, 4, 2},
                {"interleaved-1f1b", 2, 4, 2},
                {"gpipe", 2, 4, 1, 2}},
               5);
}

TEST(Pipeline, StagesByCostEqualTheReference) {
  PipelineCase c{"interleaved-1f1b", 2, 4};
  c.split = StageSplit::by_cost;
  expect_cases("llama_parity", {c}, 1);
}

// The caller's schedule unshards more stages of a rank at a time than any built-in schedule.
TEST(Pipeline, AnOwnScheduleMayUnshardAllStagesOfARankAtOnce) {
  const int pp = 2, microbatches = 4;
  PipelineCase c{"own", pp, microbatches, 2};
  c.own_schedule = std::make_shared<const Schedule>(
      with_fsdp(with_communication(make_schedule("interleaved-1f1b", {pp, microbatches, 4})), 4));
  expect_cases("llama_parity", {c}, 2);
}

// The parameters after three steps, in the order of the model.
std::vector<double> trained(Gang& root, const Reference& reference, const std::unique_ptr<Model>& model,
                            int microbatches) {
  assign_initial(*model, reference);
  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), optimizer_of(reference), model->ops());
  StepOptions options;
  options.microbatches = microbatches;
  for (int64_t step = 0; step < 3; ++step)
    train_step(*model, optimizer.get(), own_rows(*model, reference, step), options, model->device().stream());
  std::vector<double> all;
  for (const NamedParameter& p : model->inspect().parameters())
    for (const double x : gathered(*model, *p.parameter)) all.push_back(x);
  EXPECT_FALSE(root.error());
  return all;
}

TEST(Pipeline, EveryScheduleHasTheBitsOfOneRankThatAccumulates) {
  const Reference reference("llama_parity");
  for (const int microbatches : {4, 6}) {  // of 16 rows in all
    std::vector<double> alone;
    run_ranks(1, [&](Gang& root) {
      const auto model = make_model(make_decoder(reference.config), make_gangs(root),
                                    parallel(Strategy::full_shard, DType::f32));
      alone = trained(root, reference, model, microbatches);
    });
    for (const std::string& name : schedule_names())
      run_ranks(2, [&](Gang& root) {
        const auto model = make_model(root, {name, 2, microbatches}, reference.config, DType::f32);
        EXPECT_EQ(trained(root, reference, model, microbatches), alone) << name << ", " << microbatches;
      });
  }
}

TEST(Pipeline, ARankHoldsItsOwnStagesAlone) {
  const Reference reference("llama_parity_tied");
  run_ranks(2, [&](Gang& root) {
    const auto model = make_model(root, PipelineCase{}, reference.config);
    size_t names = 0;
    for (const NamedParameter& p : model->inspect().parameters()) {
      ++names;
      const bool first = p.name.find("embed") != std::string::npos ||
                         (p.name.find("layers.") != std::string::npos && p.name[13] < '4');
      EXPECT_EQ(p.parameter->shard.count(), first == (root.rank() == 0) ? p.parameter->shape.count() : 0)
          << p.name;
    }
    EXPECT_EQ(names, 8u * 9 + 2) << "the whole model, the tied parameter once";
    EXPECT_EQ(model->inspect().parameter("lm_head.weight").parameter,
              model->inspect().parameter("model.embed_tokens.weight").parameter);
  });
}

TEST(Pipeline, WhatDoesNotFitIsRefusedOnAllRanks) {
  const Reference reference("llama_parity");
  run_ranks(2, [&](Gang& root) {
    const GangsPtr gangs = make_gangs(root, PipelineCase{});
    const auto refuses = [&](Code code, const char* words,
                             const std::function<void(PipelineOptions&)>& change) {
      ParallelOptions options = parallel(Strategy::full_shard);
      change(options.pipeline);
      expect_refusal(code, words, [&] { make_model(make_decoder(reference.config), gangs, options); });
    };
    const Code wrong = Code::invalid_argument;
    refuses(wrong, "\"fast\" is unknown", [](PipelineOptions& o) { o.schedule = "fast"; });
    refuses(wrong, "need at least 4", [](PipelineOptions& o) {
      o.schedule = "dualpipev";
      o.microbatches = 3;
    });
    refuses(wrong, "needs fewer stages", [](PipelineOptions& o) {
      o.schedule = "interleaved-1f1b";
      o.stages_per_rank = 6;
    });
    refuses(wrong, "1 entries for 2 stages", [](PipelineOptions& o) {
      o.split = StageSplit::given;
      o.first_layers = {0};
    });
    refuses(wrong, "first_layers[1] is 9", [](PipelineOptions& o) {
      o.split = StageSplit::given;
      o.first_layers = {0, 9};
    });
    expect_refusal(Code::not_supported, "cannot be cut", [&] {
      make_model(std::make_shared<SquareLoss>()->module(), gangs, parallel(Strategy::full_shard));
    });
    Model pieces(make_decoder(reference.config), gangs);
    expect_refusal(Code::not_supported, "parallelize cuts", [&] { pieces.build().fully_shard("", {}); });
    // A refused model is whole again, so it can be parallelized.
    ParallelOptions options = parallel(Strategy::full_shard);
    options.pipeline.microbatches = 4;
    pieces.build().parallelize(options);
    const auto optimizer = make_optimizer("adamw", pieces.inspect().parameters(), {}, pieces.ops());
    StepOptions step;
    step.microbatches = 3;
    expect_refusal(wrong, "made for 4", [&] {
      train_step(pieces, optimizer.get(), own_rows(pieces, reference, 0), step, pieces.device().stream());
    });
    step.microbatches = 1;  // takes the pipeline's number
    EXPECT_EQ(
        train_step(pieces, optimizer.get(), own_rows(pieces, reference, 0), step, pieces.device().stream())
            .skipped,
        Skip::none);
    Batch longer = own_rows(pieces, reference, 0);
    longer.inputs[0] = longer.targets[0] =
        tensor_of(pieces, DType::i64, Shape{4, 40}, std::vector<int64_t>(160, 1).data());
    expect_refusal(wrong, "longer than",
                   [&] { train_step(pieces, optimizer.get(), longer, step, pieces.device().stream()); });
  });
}

}  // namespace
}  // namespace gangway::test
