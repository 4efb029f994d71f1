// Dropout of a gpt2: one set of bits on every mesh, for any number of microbatches, under recomputation and
// after a resume, and none in evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "checkpoint/config_json.h"
#include "checkpoint/model_io.h"
#include "checkpoint/run/checkpoints.h"
#include "data/data_path.h"
#include "families/family_values.h"
#include "support/host_memory.h"
#include "train/manual.h"
#include "train/train_testing.h"

namespace gangway::test {
namespace {

constexpr int64_t kRows = 4, kTokens = 16;

struct DropoutRun {
  const char* name;
  MeshOptions degrees;
  int microbatches = 1;
  bool sequence_parallel = false;
  RecomputeKind recompute = RecomputeKind::none;
  ContextMethod context = ContextMethod::ring;
  std::array<int64_t, 2> rows{kRows / 2, kRows / 2};  // of each data coordinate, if there are two
  int ranks() const { return degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp; }
};
std::ostream& operator<<(std::ostream& out, const DropoutRun& run) { return out << run.name; }

const DropoutRun kOneRank{"one rank", {.dp_shard = 1}};
const DropoutRun kUneven{"dp_shard 2 with 3 rows and 1",
                         {.dp_shard = 2},
                         2,
                         false,
                         RecomputeKind::full,
                         ContextMethod::ring,
                         {3, 1}};
const DropoutRun kRuns[] = {
    {"two microbatches", {.dp_shard = 1}, 2},
    {"three microbatches", {.dp_shard = 1}, 3},
    {"full recomputation", {.dp_shard = 1}, 1, false, RecomputeKind::full},
    {"selective recomputation", {.dp_shard = 1}, 1, false, RecomputeKind::selective},
    {"dp_shard 2", {.dp_shard = 2}},
    {"dp_replicate 2 with two microbatches", {.dp_replicate = 2, .dp_shard = 1}, 2},
    {"tp 2", {.dp_shard = 1, .tp = 2}},
    {"tp 2 with sequences", {.dp_shard = 1, .tp = 2}, 1, true},
    {"tp 4 with sequences and recomputation", {.dp_shard = 1, .tp = 4}, 2, true, RecomputeKind::full},
    {"cp 2", {.dp_shard = 1, .cp = 2}},
    {"cp 2 all_to_all", {.dp_shard = 1, .cp = 2}, 2, false, RecomputeKind::none, ContextMethod::all_to_all},
    {"pp 2", {.pp = 2, .dp_shard = 1}, 2},
    {"pp 2 x dp 2", {.pp = 2, .dp_shard = 2}, 2},
    {"cp 2 x tp 2 with sequences", {.dp_shard = 1, .cp = 2, .tp = 2}, 1, true},
    kUneven,
    {"dp_replicate 2 with 1 row and 3",
     {.dp_replicate = 2, .dp_shard = 1},
     1,
     false,
     RecomputeKind::none,
     ContextMethod::ring,
     {1, 3}},
    {"pp 2 x dp 2 with 3 rows and 1",
     {.pp = 2, .dp_shard = 2},
     2,
     false,
     RecomputeKind::none,
     ContextMethod::ring,
     {3, 1}},
    {"dp 2 with no row and 4", {.dp_shard = 2}, 1, false, RecomputeKind::none, ContextMethod::ring, {0, 4}},
    {"pp 2 x cp 2 x tp 2 with sequences", {.pp = 2, .dp_shard = 1, .cp = 2, .tp = 2}, 2, true},
};

DecoderOptions decoder_with(double dropout) {
  DecoderOptions options = decoder_options_of_folder(test_data("families/gpt2"));
  options.embedding_dropout = options.residual_dropout = dropout;
  return options;
}

// The vocabulary is a prime, so embedding and head stay whole.
std::string rows_of(const DropoutRun& run, const DecoderOptions& decoder) {
  if (run.degrees.tp == 1) return "";
  if (!run.sequence_parallel) return "model.embed_tokens -> replicate\nlm_head -> replicate\n";
  return text("model.embed_tokens -> replicate\nmodel.layers.", decoder.layers - 1,
              " -> prepare_output(Shard(1), Replicate)\nmodel.norm -> replicate\nlm_head -> replicate\n");
}

std::unique_ptr<Model> loaded(Gang& root, const DropoutRun& run, double dropout = 0.1, uint64_t seed = 3) {
  const DecoderOptions decoder = decoder_with(dropout);
  ParallelOptions options = parallel(Strategy::full_shard);
  options.seed = seed;
  options.tensor.family.sequence_parallel = run.sequence_parallel;
  options.context = run.context;
  options.recompute.kind = run.recompute;
  options.tensor.rows = plan_from_text(rows_of(run, decoder));
  auto model = make_model(make_decoder(decoder), create_gangs(root.shared_from_this(), run.degrees), options);
  load_model(*model, test_data("families/gpt2"));
  return model;
}

Batch batch_of(Model& model, const std::array<int64_t, 2>& of_two) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  std::vector<int64_t> tokens(kRows * kTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * 37 % 89);
  const int64_t rows = count == 1 ? kRows : of_two[static_cast<size_t>(index)];
  const int64_t first = index == 0 ? 0 : of_two[0];
  Batch batch;
  batch.inputs = {tensor_of(model, DType::i64, {rows, kTokens}, tokens.data() + first * kTokens)};
  return batch;
}

std::unique_ptr<Optimizer> sgd_of(Model& model, double lr) {
  OptimizerOptions sgd;
  sgd.lr = lr;
  return make_optimizer("sgd", model.inspect().parameters(), sgd, model.ops());
}

double step(Model& model, Optimizer& optimizer, const DropoutRun& run) {
  StepOptions options;
  options.microbatches = run.microbatches;
  return train_step(model, &optimizer, batch_of(model, run.rows), options, model.device().stream()).loss;
}

struct Outcome {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

// A step of plain SGD moves each parameter by its gradient times the rate. The rate is large, so that the
// parameter's own digits do not hide those of the gradient.
Outcome outcome_of(Model& model, const DropoutRun& run) {
  constexpr double kRate = 65536;
  Outcome outcome;
  for (const NamedParameter& p : model.inspect().parameters())
    outcome.gradients[p.name] = gathered(model, *p.parameter);
  outcome.loss = step(model, *sgd_of(model, kRate), run);
  for (const NamedParameter& p : model.inspect().parameters()) {
    const std::vector<double> after = gathered(model, *p.parameter);
    std::vector<double>& gradient = outcome.gradients.at(p.name);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = (gradient[i] - after[i]) / kRate;
  }
  return outcome;
}

const Outcome& of_one_rank() {
  static const Outcome outcome = [] {
    Outcome made;
    run_ranks(1, [&](Gang& root) { made = outcome_of(*loaded(root, kOneRank), kOneRank); });
    return made;
  }();
  return outcome;
}

class DropoutOfGpt2 : public testing::TestWithParam<DropoutRun> {};

TEST_P(DropoutOfGpt2, GivesTheLossAndTheGradientsOfOneRankOnEveryMesh) {
  const Outcome& wanted = of_one_rank();
  run_ranks(GetParam().ranks(), [&](Gang& root) {
    const Outcome found = outcome_of(*loaded(root, GetParam()), GetParam());
    EXPECT_NEAR(found.loss / wanted.loss, 1, 1e-12);
    for (const auto& [name, gradient] : found.gradients)
      if (!is_noise("gpt2", name)) {
        EXPECT_LT(distance(gradient, wanted.gradients.at(name)), 1e-12) << name;
      }
  });
}

INSTANTIATE_TEST_SUITE_P(, DropoutOfGpt2, testing::ValuesIn(kRuns), [](const auto& row) {
  std::string name = row.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(DropoutOfATraining, FollowsFromSeedAndStepAndIsGoneInEvaluation) {
  run_ranks(1, [](Gang& root) {
    const auto model = loaded(root, kOneRank), plain = loaded(root, kOneRank, 0),
               other = loaded(root, kOneRank, 0.1, 4);
    Stream& stream = model->device().stream();
    const auto sgd = sgd_of(*model, 0), sgd_of_plain = sgd_of(*plain, 0), sgd_of_other = sgd_of(*other, 0);
    const double without = step(*plain, *sgd_of_plain, kOneRank), first = step(*model, *sgd, kOneRank);
    EXPECT_EQ(eval_step(*model, batch_of(*model, kOneRank.rows), {}, stream).loss, without);
    EXPECT_NE(first, without);
    EXPECT_NEAR(first / without, 1, 0.2);
    EXPECT_NE(step(*other, *sgd_of_other, kOneRank), first) << "another seed";
    EXPECT_NE(step(*model, *sgd, kOneRank), first) << "another step";
  });
}

TEST(DropoutOfATraining, GoesOnWithTheSameBitsAfterAResumeOnAnotherMesh) {
  const TemporaryFolder folder;
  CheckpointsOptions options;
  options.folder = folder.path();
  options.synchronous = true;
  options.timeout_ms = 60'000;
  double wanted = 0;
  run_ranks(1, [&](Gang& root) {
    const auto model = loaded(root, kOneRank);
    const auto optimizer = sgd_of(*model, 0.1);
    step(*model, *optimizer, kOneRank);
    Checkpoints checkpoints(model->fsdp().gangs(), options);
    CheckpointState state;
    state.step = 1;
    checkpoints.save({{"", model.get(), optimizer.get()}}, state);
    wanted = step(*model, *optimizer, kOneRank);
  });
  for (const DropoutRun& run : {kOneRank, kRuns[4], kUneven})
    run_ranks(run.ranks(), [&](Gang& root) {
      const auto model = loaded(root, run);
      const auto optimizer = sgd_of(*model, 0.1);
      Checkpoints checkpoints(model->fsdp().gangs(), options);
      EXPECT_TRUE(checkpoints.restore({{"", model.get(), optimizer.get()}}, {}).has_value());
      EXPECT_NEAR(step(*model, *optimizer, run) / wanted, 1, 1e-12);
    });
}

// The rows of a loop of the caller's own: those of the first microbatch, data coordinate by data coordinate,
// then those of the second one.
TEST(DropoutOfATraining, OfFramesHasOneMaskForEachRowHoweverTheDataRanksShareThem) {
  const auto masks = [](Gang& root, const std::vector<std::array<int64_t, 2>>& microbatches) {
    const auto model = std::shared_ptr<Model>(
        make_model(make_dropout(0.5), make_gangs(root), parallel(Strategy::full_shard)));
    std::vector<double> all;
    for (size_t i = 0; i < microbatches.size(); ++i) {
      const std::array<int64_t, 2>& rows = microbatches[i];
      const auto rank = static_cast<size_t>(root.rank());
      const std::vector<double> ones(static_cast<size_t>(rows[rank] * 8), 1);
      const Tensor x = tensor_of(*model, DType::f64, {rows[rank], 8}, ones.data());
      ManualFrame frame(model, {.step = 1, .microbatch = static_cast<int>(i)});
      const Values y = manual_forward(*model, {&x, 1}, &frame, model->device().stream());
      const Values dx = manual_backward(frame, {&x, 1}, model->device().stream());
      const HostMemory host(y.at(0)), back(dx.at(0));
      const size_t first = all.size() + (rank == 0 ? 0 : static_cast<size_t>(rows[0] * 8));
      all.resize(all.size() + static_cast<size_t>((rows[0] + rows[1]) * 8));
      for (size_t j = 0; j < ones.size(); ++j) {
        all[first + j] = host.data<double>()[j];
        EXPECT_EQ(back.data<double>()[j], all[first + j]);
      }
    }
    Collective sum;
    sum.op = CollectiveOp::all_reduce;
    std::vector<double> whole(all.size());
    sum.in = all.data();
    sum.out = whole.data();
    sum.count = all.size();
    sum.dtype = DType::f64;
    sum.reduce = Reduce::sum;
    root.run_now(Channel::control, sum);
    return whole;
  };
  std::vector<double> wanted;
  run_ranks(1, [&](Gang& root) { wanted = masks(root, {{6, 0}}); });
  run_ranks(1, [&](Gang& root) { EXPECT_EQ(masks(root, {{4, 0}, {2, 0}}), wanted); });
  run_ranks(2, [&](Gang& root) { EXPECT_EQ(masks(root, {{3, 1}, {0, 2}}), wanted); });
}

TEST(DropoutOfATraining, OfAttentionsProbabilitiesIsRefusedAndEvaluationIsNot) {
  run_ranks(1, [](Gang& root) {
    DecoderOptions decoder = decoder_with(0.1);
    decoder.attention_dropout = 0.1;
    const auto model = make_model(make_decoder(decoder), make_gangs(root), parallel(Strategy::full_shard));
    load_model(*model, test_data("families/gpt2"));
    const auto plain = loaded(root, kOneRank, 0);
    Stream& stream = model->device().stream();
    EXPECT_EQ(eval_step(*model, batch_of(*model, kOneRank.rows), {}, stream).loss,
              eval_step(*plain, batch_of(*plain, kOneRank.rows), {}, stream).loss);
    const auto sgd = sgd_of(*model, 0.1);
    const Error error = error_of([&] { step(*model, *sgd, kOneRank); });
    EXPECT_EQ(error.code(), Code::not_supported);
    for (const char* part : {"model.layers.0.self_attn", "attention_dropout", "0.1", "write 0"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  });
}

}  // namespace
}  // namespace gangway::test
