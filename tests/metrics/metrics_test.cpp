// The rows of a run over several ranks.
#include "metrics/metrics.h"
#include "base/log.h"

#include <unistd.h>
#include <cmath>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "metrics/flops.h"
#include "metrics/log_files.h"
#include "train/rig.h"

namespace gangway {
namespace {

namespace fs = std::filesystem;

// A model with an optimizer, and the rows that its metrics gave.
struct LoggedRun {
  LoggedRun(Gang& root, MetricsOptions options) : rig(test::llama_rig(root)), model(std::move(rig.model)) {
    options.peak_flops = 1e9;
    options.sequence = 8;
    options.sink = [this](const MetricsRow& row) { rows.push_back(row); };
    metrics = std::make_unique<Metrics>(model, options);
  }
  StepResult step(int64_t samples = 4) {
    const Batch batch = test::pattern_batch(*model, 2, 8, 1);
    const StepResult result = train_step(*model, rig.optimizer.get(), batch, {}, model->device().stream());
    metrics->log(result, {samples, 0.25, 0.5});
    return result;
  }
  test::Rig rig;
  std::shared_ptr<Model> model;
  std::vector<MetricsRow> rows;
  std::unique_ptr<Metrics> metrics;
};

std::string temporary(const char* name) {
  return fs::temp_directory_path() / ("gangway-" + std::to_string(getpid()) + "-" + name);
}

TEST(Metrics, ARowSumsTheStepsOfItsInterval) {
  test::run_ranks(2, [](Gang& root) {
    MetricsOptions options;
    options.every = 3;
    LoggedRun run(root, options);
    double seconds = 0, loss = 0;
    for (int s = 0; s < 3; ++s) {
      const StepResult result = run.step();
      seconds += result.seconds;
      loss = result.loss;
    }
    ASSERT_EQ(run.rows.size(), 1u);
    const MetricsRow& row = run.rows[0];
    EXPECT_EQ(row.step, 3);
    EXPECT_EQ(row.tokens, 3 * 2 * 2 * 8);  // steps, ranks, rows, tokens of a row
    EXPECT_EQ(row.samples, 12);
    EXPECT_EQ(row.loss, loss);
    EXPECT_NEAR(row.seconds, seconds, 1e-12);
    EXPECT_EQ(row.data_seconds, 0.75);
    EXPECT_EQ(row.checkpoint_seconds, 1.5);
    EXPECT_GT(row.memory, 0);
  });
}

TEST(Metrics, TheUtilizationIsThatOfTheFormula) {
  DecoderOptions o = test::small_llama();
  o.window = 0;
  const double layer = 2.0 * static_cast<double>(o.dim) * static_cast<double>(o.heads + o.kv_heads) *
                           static_cast<double>(o.dim / o.heads) +
                       3.0 * static_cast<double>(o.dim * o.ffn);
  const double expected = 6 * (static_cast<double>(o.layers) * layer + static_cast<double>(o.dim * o.vocab)) +
                          6.0 * static_cast<double>(o.layers * o.dim * 8);
  EXPECT_NEAR(flops_per_token(o, 8), expected, 1e-6);
  test::run_ranks(2, [&](Gang& root) {
    LoggedRun run(root, {});
    run.step();
    const MetricsRow& row = run.rows.at(0);
    EXPECT_NEAR(row.mfu, row.tokens_per_second * expected / 2e9, 1e-9);
  });
}

TEST(Metrics, FlopsCountTheWindowOfEachLayerAndTheMatricesOfItsMlp) {
  DecoderOptions o = test::small_llama();
  o.layers = 3;
  const double whole = flops_per_token(o, 8);
  o.window = 3;
  o.window_layers = "wf";  // layers 0 and 2
  EXPECT_NEAR(whole - flops_per_token(o, 8), 6.0 * 2 * static_cast<double>(o.dim * (8 - 3)), 1e-6);
  o.window = 9;
  EXPECT_EQ(flops_per_token(o, 8), whole);
  o.gated_mlp = false;
  EXPECT_NEAR(whole - flops_per_token(o, 8), 6.0 * static_cast<double>(o.layers * o.dim * o.ffn), 1e-6);
}

TEST(Metrics, TheSlowestRankIsTheOneThatWaitedLeast) {
  test::run_ranks(3, [](Gang& root) {
    LoggedRun run(root, {});
    StepResult result = run.step();
    result.exposed_wait_seconds = root.rank() == 1 ? 0.5 : 2.0 + root.rank();
    run.metrics->log(result, {});
    const MetricsRow& row = run.rows.at(1);
    EXPECT_EQ(row.slowest_rank, 1);
    EXPECT_NEAR(row.slowest_rank_seconds, 3 - 0.5, 1e-12);
    EXPECT_NEAR(row.wait_seconds, (2 + 0.5 + 4) / 3, 1e-12);
  });
}

TEST(Metrics, AnEvaluationIsPartOfTheNextRowAlone) {
  test::run_ranks(1, [](Gang& root) {
    LoggedRun run(root, {});
    run.metrics->log_evaluation(1.5, 2);
    run.step();
    run.step();
    EXPECT_EQ(run.rows.at(0).validation_loss, 1.5);
    EXPECT_EQ(run.rows.at(0).evaluate_seconds, 2);
    EXPECT_TRUE(std::isnan(run.rows.at(1).validation_loss));
  });
}

TEST(Metrics, FlushWritesTheRowThatIsNotFull) {
  const std::string svg = temporary("loss.svg");
  test::run_ranks(2, [&](Gang& root) {
    MetricsOptions options;
    options.every = 10;
    options.svg = svg;
    LoggedRun run(root, options);
    run.step();
    run.metrics->flush();
    EXPECT_EQ(run.rows.size(), 1u);
  });
  EXPECT_TRUE(fs::exists(svg));
  fs::remove(svg);
}

// Else the rows of a run that is continued would be those of other steps than in an undisturbed one.
TEST(Metrics, RowsEndAtTheSameStepsAfterAFlush) {
  test::run_ranks(1, [](Gang& root) {
    MetricsOptions options;
    options.every = 3;
    LoggedRun run(root, options);
    run.step();
    run.metrics->flush();
    run.step();
    EXPECT_TRUE(run.metrics->next_log_ends_interval());
    run.step();
    ASSERT_EQ(run.rows.size(), 2u);
    EXPECT_EQ(run.rows[0].step, 1);
    EXPECT_EQ(run.rows[1].step, 3);
  });
}

// It would cost more at each save, the longer the run.
TEST(Metrics, ThePictureIsDrawnWithoutReadingTheFileAgain) {
  const std::string svg = temporary("drawn.svg"), path = temporary("drawn.jsonl");
  const auto points = [&] {
    std::ifstream in(svg);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const size_t first = text.find("points=\"") + 8;
    const std::string curve = text.substr(first, text.find('"', first) - first);
    return std::count(curve.begin(), curve.end(), ',');
  };
  test::run_ranks(1, [&](Gang& root) {
    MetricsOptions options;
    options.svg = svg;
    options.json_lines = path;
    LoggedRun run(root, options);
    run.step();
    run.metrics->flush();
    EXPECT_EQ(points(), 1);
    fs::resize_file(path, 0);
    run.step();
    run.metrics->flush();
    EXPECT_EQ(points(), 2);
    // After a restore the file has what holds: the row of step 2, and then that of step 8.
    run.metrics->restore(R"({"step": 7, "tokens": 1, "samples": 1})");
    run.step();
    run.metrics->flush();
    EXPECT_EQ(points(), 2);
  });
  fs::remove(svg);
  fs::remove(path);
}

TEST(Metrics, AContinuedRunCountsOnAndCutsLaterLines) {
  const std::string path = temporary("run.jsonl");
  std::string position;
  const auto train = [&](int steps, bool restores) {
    test::run_ranks(2, [&](Gang& root) {
      MetricsOptions options;
      options.json_lines = path;
      LoggedRun run(root, options);
      if (restores) run.metrics->restore(position);
      for (int s = 0; s < steps; ++s) {
        run.step();
        if (!restores && s == 1 && root.rank() == 0) position = run.metrics->position();
      }
    });
  };
  train(4, false);
  train(1, true);
  LogFile file(path, LogFile::Format::json_lines);
  std::vector<int64_t> steps;
  file.for_each_point([&](const LogFile::Point& point) { steps.push_back(point.step); });
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3}));
  fs::remove(path);
}

std::vector<int64_t> steps_in(const std::string& path) {
  std::vector<int64_t> steps;
  LogFile(path, LogFile::Format::json_lines).for_each_point([&](const LogFile::Point& point) {
    steps.push_back(point.step);
  });
  return steps;
}

// A save in the middle of an interval flushes; rows end where they end in a run that was not stopped.
TEST(Metrics, ARunThatIsContinuedHasTheRowsOfTheUndisturbedRun) {
  const std::string path = temporary("interval.jsonl");
  std::string position;
  const auto train = [&](int steps, bool restores) {
    test::run_ranks(1, [&](Gang& root) {
      MetricsOptions options;
      options.json_lines = path;
      options.every = 4;
      LoggedRun run(root, options);
      if (restores) run.metrics->restore(position);
      for (int s = 0; s < steps; ++s) run.step();
      run.metrics->flush();
      position = run.metrics->position();
    });
  };
  train(6, false);
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{4, 6}));
  train(1, true);
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{4, 7}));
  train(5, true);
  EXPECT_EQ(steps_in(path), (std::vector<int64_t>{4, 8, 12}));
  fs::remove(path);
}

TEST(Metrics, RowsThatAreMissingAreLogged) {
  const std::string path = temporary("gap.jsonl");
  test::run_ranks(1, [&](Gang& root) {
    MetricsOptions options;
    options.json_lines = path;
    LoggedRun run(root, options);
    for (int s = 0; s < 3; ++s) run.step();
    const std::string position = run.metrics->position();
    LogFile(path, LogFile::Format::json_lines).cut_after(1);
    const std::vector<LogLine> before = log_lines(0);
    run.metrics->restore(position);
    const std::vector<LogLine> lines = log_lines(before.empty() ? 0 : before.back().number + 1);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].message.find("ends at step 1, and the run continues after step 3"), std::string::npos)
        << lines[0].message;
  });
  fs::remove(path);
}

// Its peak is given by no one; that of a machine whose other users were busy would be far too low.
TEST(Metrics, ASteplessRateIsNoneAndNoUtilizationIsOverOne) {
  test::run_ranks(1, [](Gang& root) {
    const test::Rig rig = test::llama_rig(root);
    MetricsOptions options;
    options.sequence = 8;
    Metrics metrics(std::shared_ptr<Model>(rig.model.get(), [](Model*) {}), options);
    StepResult result;
    result.tokens = 1000;
    result.seconds = 1e-9;  // faster than any machine
    metrics.log(result, {});
    EXPECT_TRUE(std::isnan(metrics.latest().mfu)) << metrics.latest().mfu;
    result.skipped = Skip::no_weight;
    metrics.log(result, {});
    EXPECT_EQ(metrics.latest().tokens_per_second, 0);
    EXPECT_EQ(metrics.latest().mfu, 0);
  });
}

TEST(Metrics, AFullDiskIsAnErrorOfEveryRankAndTheGangWorksOn) {
  test::run_ranks(2, [](Gang& root) {
    MetricsOptions options;
    options.json_lines = "/dev/full";
    LoggedRun run(root, options);
    try {
      run.step();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      EXPECT_NE(std::string(error.what()).find("/dev/full: No space left"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(root.error(), std::nullopt);
  });
}

TEST(Metrics, OtherOptionsAndOtherPositionsAreRefused) {
  test::run_ranks(2, [](Gang& root) {
    MetricsOptions differs;
    differs.every = 1 + root.rank();
    EXPECT_THROW(LoggedRun(root, differs), Error);
    MetricsOptions none;
    none.every = 0;
    EXPECT_THROW(LoggedRun(root, none), Error);
    LoggedRun run(root, {});
    for (const char* text : {"", "{}", "{\"step\": -1, \"tokens\": 0, \"samples\": 0}"})
      EXPECT_THROW(run.metrics->restore(text), Error) << text;
  });
}

TEST(Metrics, AStopOfOneRankIsKnownToAllAfterTheStep) {
  test::run_ranks(3, [](Gang& root) {
    const test::Rig rig = test::llama_rig(root);
    const Batch batch = test::pattern_batch(*rig.model, 2, 8, 1);
    StepOptions options;
    EXPECT_FALSE(rig.step(batch, options).stop);
    options.stop = root.rank() == 2;
    const StepResult result = rig.step(batch, options);
    EXPECT_TRUE(result.stop);
    EXPECT_EQ(result.step, 2);
  });
}

}  // namespace
}  // namespace gangway
