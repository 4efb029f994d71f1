// N steps, a save, a restore into a new model and M steps are N + M steps.
#include "checkpoint/run/run_testing.h"

namespace gangway::test {
namespace {

using Lines = std::vector<std::string>;

// Trains for 3 steps, saves, and trains on; then restores into a run that began with other values, and does
// the same steps. Both ends must have the same bits. `prepare` is called on the first run before the save.
template <typename Prepare>
void expect_same_bits(const RunCase& c, Prepare&& prepare, bool synchronous = true) {
  const TemporaryFolder folder;
  run_ranks(c.ranks(), [&](Gang& root) {
    CheckpointsOptions options = in_folder(folder.path());
    options.synchronous = synchronous;
    std::vector<double> losses, resumed_losses;
    std::string bytes;
    {
      const TrainingRun run(root, c);
      Checkpoints checkpoints(run.gangs(), options);
      run.steps(0, 3);
      prepare(run);
      checkpoints.save({run.part()}, at_step(3));
      run.steps(3, 6, &losses);  // while the writer writes, unless the save was synchronous
      checkpoints.wait();
      bytes = run.bytes();
    }
    RunCase other = c;
    const bool has_base = c.lora_rank != 0;  // fresh values of the same seed, which the checkpoint lacks
    if (!has_base) other.seed = 4;
    const TrainingRun run(root, other);
    run.step(17);
    Checkpoints checkpoints(run.gangs(), options);
    const auto report = checkpoints.restore({run.part()}, {});
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->state.step, 3);
    EXPECT_TRUE(report->left_out.empty());
    EXPECT_EQ(report->differences, has_base ? Lines{} : Lines{"seed: 3 in the checkpoint, 4 now"});
    EXPECT_EQ(run.optimizer->steps(), 3);
    run.steps(3, 6, &resumed_losses);
    EXPECT_EQ(resumed_losses, losses);
    EXPECT_TRUE(run.bytes() == bytes) << c.kind << ": other values or states";
  });
}
void expect_same_bits(const RunCase& c, bool synchronous = true) {
  expect_same_bits(
      c, [](const TrainingRun&) {}, synchronous);
}
constexpr bool kBesideTraining = false;

OptimizerOptions with(HyperValues values) {
  OptimizerOptions options;
  options.lr = 0.01;
  options.hyperparameters = std::move(values);
  return options;
}

TEST(Resume, OfAdamWHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits({.optimizer = with({})}, kBesideTraining);
  expect_same_bits(
      {.optimizer = with({{"moment_dtype", DType::bf16}}), .compute = DType::bf16, .tied = true});
}
TEST(Resume, OfLionHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits({.kind = "lion", .optimizer = with({{"moment_dtype", DType::bf16}})});
}
TEST(Resume, OfSgdHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits({.kind = "sgd", .optimizer = with({{"momentum", 0.9}})});
  expect_same_bits({.kind = "sgd", .optimizer = with({})});  // has no states, and no file of them
}
TEST(Resume, OnOneRankHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits({.optimizer = with({}), .mesh = {.pp = 1, .shards = 1}}, kBesideTraining);
}
TEST(Resume, OnStagesThatAreSplitHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits(
      {.optimizer = with({}), .mesh = {.pp = 2, .microbatches = 2, .tp = 2}, .tied = true, .layers = 2},
      kBesideTraining);
}
TEST(Resume, OfAdaptersHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits({.optimizer = with({}), .lora_rank = 2});
  expect_same_bits(
      {.optimizer = with({}), .mesh = {.pp = 2, .microbatches = 2, .tp = 2}, .layers = 2, .lora_rank = 3});
}
TEST(Resume, OfASynchronousSaveHasTheBitsOfTheUndisturbedRun) {
  expect_same_bits({.optimizer = with({{"moment_dtype", DType::bf16}})});
}

// Kinds whose states have other shapes, dtypes or owners than their parameters, and averages of parameters.
RunCase kind_case(const std::string& name) {
  RunCase c{.kind = name == "ema" ? "adamw" : name, .optimizer = with({})};
  if (name == "ema") c.optimizer.ema_decay = 0.7;
  return c;
}
class ResumeOfKind : public ::testing::TestWithParam<const char*> {};

TEST_P(ResumeOfKind, HasTheBitsOfTheUndisturbedRun) { expect_same_bits(kind_case(GetParam())); }

TEST_P(ResumeOfKind, OntoAnotherMeshKeepsEveryBit) {
  const std::string kind = GetParam();
  const TemporaryFolder folder;
  const auto run_on = [&](const PipelineCase& mesh, int64_t step) {
    RunCase c = kind_case(kind);
    c.mesh = mesh;
    c.seed += static_cast<uint64_t>(step);  // first values that only a restore makes right
    run_ranks(c.ranks(), [&](Gang& root) {
      const TrainingRun run(root, c);
      CheckpointsOptions options = synchronous_in(folder.path());
      options.keep = 0;
      Checkpoints checkpoints(run.gangs(), options);
      if (!checkpoints.restore({run.part()}, {})) run.steps(0, 3);
      checkpoints.save({run.part()}, at_step(step));
    });
  };
  const auto file_of = [&](int64_t step, const char* name) {
    return read_all(folder.path() + "/step-0000000" + std::to_string(step) + "/" + name);
  };
  run_on({.pp = 1, .shards = 2}, 3);
  run_on({.pp = 1, .shards = 3}, 4);
  // A cut by tp inside of a block of 8-bit states is refused.
  if (kind != "adamw8bit") run_on({.pp = 1, .tp = 2}, 5);
  run_on({.pp = 1, .shards = 1}, 6);
  for (const char* const name : {"model.safetensors", "optimizer.safetensors"}) {
    ASSERT_FALSE(file_of(3, name).empty());
    EXPECT_TRUE(file_of(6, name) == file_of(3, name)) << kind << ": " << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ResumeOfKind, ::testing::Values("muon", "adafactor", "adamw8bit", "ema"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Resume, KeepsScheduleAndARateThatWasSet) {
  RunCase c{.optimizer = with({})};
  c.optimizer.schedule.kind = LrSchedule::Kind::cosine;
  c.optimizer.schedule.warmup = 2;
  c.optimizer.schedule.total = 9;
  expect_same_bits(c, [](const TrainingRun& run) { run.optimizer->set_lr(0.02); });
}

TEST(Resume, KeepsTheDynamicLossScaleAndItsCounter) {
  RunCase c{.optimizer = with({}), .compute = DType::f16};
  c.optimizer.loss_scale.interval = 5;  // doubles after two steps of the second part
  expect_same_bits(c, [](const TrainingRun& run) { EXPECT_TRUE(run.optimizer->loss_scale().dynamic()); });
}

// dp 4 -> tp 2 x pp 2 -> dp 3 -> one rank -> dp 4, each in a run of its own, against one rank throughout.
TEST(Resume, OnOtherMeshesHasTheNumbersOfOneRank) {
  const PipelineCase meshes[] = {{.pp = 1, .shards = 4},
                                 {.pp = 2, .microbatches = 2, .tp = 2},
                                 {.pp = 1, .shards = 3},
                                 {.pp = 1, .shards = 1},
                                 {.pp = 1, .shards = 4, .strategy = Strategy::no_shard}};
  RunCase c{.optimizer = with({}), .master = DType::f64, .layers = 2};
  constexpr int64_t kSteps = 2;
  std::vector<double> expected;
  c.mesh = {.pp = 1, .shards = 1};
  run_ranks(1, [&](Gang& root) {
    const TrainingRun run(root, c);
    run.steps(0, kSteps * static_cast<int64_t>(std::size(meshes)));
    expected = all_values(*run.model);
  });

  const TemporaryFolder folder;
  std::vector<double> got;
  int64_t at = 0;
  for (const PipelineCase& mesh : meshes) {
    c.mesh = mesh;
    run_ranks(c.ranks(), [&, first = at](Gang& root) {
      const TrainingRun run(root, c);
      Checkpoints checkpoints(run.gangs(), synchronous_in(folder.path()));
      const auto report = checkpoints.restore({run.part()}, {});
      ASSERT_EQ(report.has_value(), first > 0);
      if (report) {
        EXPECT_EQ(report->state.step, first);
      }
      run.steps(first, first + kSteps);
      checkpoints.save({run.part()}, at_step(first + kSteps));
      const std::vector<double> values = all_values(*run.model);
      if (root.rank() == 0) got = values;
    });
    at += kSteps;
    c.seed += 1;  // first values that only a restore makes right
  }
  EXPECT_LT(distance(got, expected), 1e-12);
}

// Moments in bf16 become f32, and masters in f32 become f64.
TEST(Resume, ConvertsMastersAndMomentsOfAnotherDtype) {
  const TemporaryFolder folder;
  RunCase c{.optimizer = with({{"moment_dtype", DType::bf16}})};
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, c);
    run.steps(0, 2);
    std::vector<double> values;
    {
      Checkpoints checkpoints(run.gangs(), synchronous_in(folder.path()));
      checkpoints.save({run.part()}, at_step(2));
    }
    RunCase wide = c;
    wide.master = DType::f64;
    wide.optimizer = with({});
    const TrainingRun other(root, wide);
    Checkpoints checkpoints(other.gangs(), in_folder(folder.path()));
    const auto report = checkpoints.restore({other.part()}, {});
    EXPECT_EQ(all_values(*other.model), all_values(*run.model));
    EXPECT_EQ(report->differences, (Lines{"param_dtype: \"f32\" in the checkpoint, \"f64\" now",
                                          "moment_dtype: \"bf16\" in the checkpoint, \"f32\" now"}));
    const Optimizer::Slot &there = run.optimizer->state(0)[0], &here = other.optimizer->state(0)[0];
    ASSERT_EQ(here.tensor.dtype(), DType::f64);
    EXPECT_EQ(copy_out<double>(here.tensor)[1], to_f32(copy_out<bf16_t>(there.tensor)[1]));
  });
}

}  // namespace
}  // namespace gangway::test
