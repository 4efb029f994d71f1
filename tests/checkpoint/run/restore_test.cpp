// What a restore refuses, what it lists, and what it does beside values.
#include "checkpoint/run/run_testing.h"
#include "checkpoint/safetensors.h"

namespace gangway::test {
namespace {

RunCase small_run() {
  RunCase c;
  c.optimizer.lr = 0.01;
  return c;
}

// Saves a run at the given steps.
void save(const std::string& folder, const RunCase& c, const std::vector<int64_t>& steps = {1}) {
  run_ranks(c.ranks(), [&](Gang& root) {
    const TrainingRun run(root, c);
    CheckpointsOptions options = synchronous_in(folder);
    options.keep = 0;
    Checkpoints checkpoints(run.gangs(), options);
    for (const int64_t step : steps) {
      run.step(step);
      checkpoints.save({run.part()}, at_step(step));
    }
  });
}

// Restores on two ranks; `then` gets the run and the report, or the error of a refusal.
template <typename Then>
void restore(const std::string& folder, const RunCase& c, const RestoreOptions& options, Then&& then) {
  run_ranks(c.ranks(), [&](Gang& root) {
    const TrainingRun run(root, c);
    Checkpoints checkpoints(run.gangs(), in_folder(folder));
    std::optional<RestoreReport> report;
    const std::string before = run.bytes();
    Error error(Code::ok, "");
    try {
      report = checkpoints.restore({run.part()}, options);
    } catch (const Error& refused) {
      error = refused;
      EXPECT_TRUE(run.bytes() == before) << "a refusal changed values: " << error.message();
      EXPECT_FALSE(root.error().has_value());
    }
    then(run, report, error);
  });
}

void expect_refusal(const std::string& folder, const RunCase& c, const RestoreOptions& options, Code code,
                    const std::string& words) {
  restore(folder, c, options, [&](const TrainingRun&, const auto&, const Error& error) {
    EXPECT_EQ(name(error.code()), std::string(name(code))) << error.message();
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  });
}

TEST(RestoreCheckpoint, OfAnEmptyFolderIsNone) {
  const TemporaryFolder folder;
  restore(folder.path(), small_run(), {}, [](const TrainingRun&, const auto& report, const Error& error) {
    EXPECT_EQ(error.code(), Code::ok) << error.message();
    EXPECT_FALSE(report.has_value());
  });
  expect_refusal(folder.path(), small_run(), {.step = 7}, Code::not_found, "there is none at all");
}

TEST(RestoreCheckpoint, OfAnOlderStepMovesNewerOnesAside) {
  const TemporaryFolder folder;
  save(folder.path(), small_run(), {1, 2, 3});
  expect_refusal(folder.path(), small_run(), {.step = 4}, Code::not_found,
                 "of step 4; there are those of steps 1, 2, 3");
  restore(folder.path(), small_run(), {.step = 2},
          [&](const TrainingRun& run, const auto& report, const Error&) {
            EXPECT_EQ(report->state.step, 2);
            EXPECT_EQ(run.optimizer->steps(), 2);
            if (run.model->gangs().root()->rank() == 0) {
              EXPECT_EQ(report->moved_aside.size(), 1u);
            }
          });
  EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000001", "step-00000002"}));
}

TEST(RestoreCheckpoint, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  save(folder.path(), small_run());
  RunCase other = small_run();
  other.kind = "lion";
  expect_refusal(folder.path(), other, {}, Code::invalid_argument,
                 "has the states of optimizer adamw, this one is lion");
  other = small_run();
  other.vocab = 26;
  expect_refusal(folder.path(), other, {}, Code::invalid_argument, "vocab");
  other = small_run();
  other.layers = 2;
  expect_refusal(folder.path(), other, {}, Code::invalid_argument, "num_hidden_layers");
}

// Adapters, on another mesh too, whose base has the values of the same seed or of another one.
TEST(RestoreCheckpoint, OfAdaptersNeedsTheirBase) {
  const TemporaryFolder folder;
  RunCase c = small_run();
  c.lora_rank = 2;
  save(folder.path(), c);
  const std::string path = folder.path() + "/step-00000001/";
  EXPECT_TRUE(std::filesystem::exists(path + "adapter/adapter_model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(path + "adapter/adapter_config.json"));
  for (const char* base : {"model.safetensors", "config.json"})
    EXPECT_FALSE(std::filesystem::exists(path + base));

  RunCase other = c;
  other.seed = 9;
  expect_refusal(folder.path(), other, {}, Code::invalid_argument, "were trained over another base");
  expect_refusal(folder.path(), small_run(), {}, Code::invalid_argument, "has adapters, and not the base");
  for (const PipelineCase& mesh : {PipelineCase{.pp = 1, .shards = 2}, {.pp = 1, .tp = 2}}) {
    RunCase moved = c;
    moved.mesh = mesh;
    restore(folder.path(), moved, {}, [](const TrainingRun&, const auto& report, const Error& error) {
      EXPECT_TRUE(report.has_value()) << error.message();
    });
  }
}

TEST(RestoreCheckpoint, AnotherKindOfOptimizerBeginsAnewIfItIsNotStrict) {
  const TemporaryFolder folder;
  save(folder.path(), small_run());
  RunCase other = small_run();
  other.kind = "lion";
  restore(folder.path(), other, {.strict = false},
          [](const TrainingRun& run, const auto& report, const Error& error) {
            ASSERT_TRUE(report.has_value()) << error.message();
            EXPECT_EQ(run.optimizer->steps(), 0);
            EXPECT_EQ(report->left_out.size(), 1u);
          });
}

TEST(RestoreCheckpoint, FindsAFlippedBitInEveryFile) {
  const TemporaryFolder folder;
  save(folder.path(), small_run());
  const std::string path = folder.path() + "/step-00000001/";
  // One run for all of them: a refusal leaves it as it was.
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    const std::string before = run.bytes();
    const auto write = [&](const std::string& file, const std::string& bytes) {
      root.barrier();
      if (root.rank() == 0) std::ofstream(path + file, std::ios::binary) << bytes;
      root.barrier();
    };
    for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
      const std::string whole = read_all(path + file);
      for (const size_t at : {size_t{20}, whole.size() / 2, whole.size() - 3}) {
        std::string bad = whole;
        bad[at] = static_cast<char>(bad[at] ^ 4);
        write(file, bad);
        const Error error = error_of([&] { checkpoints.restore({run.part()}, {}); });
        EXPECT_EQ(name(error.code()), std::string(name(Code::corrupt))) << error.message();
        EXPECT_NE(error.message().find(file), std::string::npos) << error.message();
        EXPECT_FALSE(root.error().has_value());
      }
      write(file, whole);
    }
    EXPECT_TRUE(run.bytes() == before) << "a refusal changed values";
    EXPECT_TRUE(checkpoints.restore({run.part()}, {}).has_value());
  });
}

// A parameter that was frozen before begins anew: its bias correction counts from the restore.
TEST(RestoreCheckpoint, AParameterThatBecameTrainableHasItsFirstStep) {
  const TemporaryFolder folder;
  RunCase frozen = small_run();
  frozen.optimizer.rules = {{"lm_head.weight", 1, -1, true}};
  save(folder.path(), frozen, {1, 2, 3});
  expect_refusal(folder.path(), small_run(), {}, Code::not_found, "has no state exp_avg.lm_head.weight");
  restore(folder.path(), small_run(), {.strict = false},
          [](const TrainingRun& run, const auto& report, const Error& error) {
            ASSERT_TRUE(report.has_value()) << error.message();
            ASSERT_EQ(report->left_out.size(), 2u);
            for (size_t i = 0; i < run.optimizer->parameters().size(); ++i)
              EXPECT_EQ(run.optimizer->first_step(i),
                        run.optimizer->parameters()[i].name == "lm_head.weight" ? 3 : 0);
            run.step(4);
            EXPECT_EQ(run.optimizer->steps(), 4);
          });
  // The other way round: a state without a place.
  const TemporaryFolder later;
  save(later.path(), small_run());
  expect_refusal(later.path(), frozen, {}, Code::invalid_argument,
                 "has a state \"exp_avg.lm_head.weight\" that the optimizer does not have");
}

TEST(RestoreCheckpoint, TheOptionsWinAndDifferencesAreListed) {
  const TemporaryFolder folder;
  save(folder.path(), small_run());
  RunCase other = small_run();
  other.optimizer.lr = 0.02;
  other.optimizer.weight_decay = 0.5;
  restore(folder.path(), other, {}, [](const TrainingRun& run, const auto& report, const Error& error) {
    ASSERT_TRUE(report.has_value()) << error.message();
    EXPECT_EQ(run.optimizer->base_lr(), 0.02);
    EXPECT_EQ(report->differences, (std::vector<std::string>{"lr: 0.01 in the checkpoint, 0.02 now",
                                                             "weight_decay: 0 in the checkpoint, 0.5 now"}));
  });
}

TEST(RestoreCheckpoint, WithoutVerificationReadsTheSameValues) {
  const TemporaryFolder folder;
  save(folder.path(), small_run());
  std::string verified;
  for (const bool verify : {true, false})
    restore(folder.path(), small_run(), {.verify = verify},
            [&](const TrainingRun& run, const auto& report, const Error& error) {
              ASSERT_TRUE(report.has_value()) << error.message();
              if (run.model->gangs().root()->rank() != 0) return;
              if (verify) verified = run.bytes();
              EXPECT_TRUE(run.bytes() == verified);
            });
}

// A file with PyTorch's states under their documented names.
TEST(LoadOptimizer, ContinuesFromAFileOfStates) {
  const TemporaryFolder folder;
  RunCase c = small_run();
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, c);
    run.steps(0, 3);
    {
      Checkpoints checkpoints(run.gangs(), synchronous_in(folder.path()));
      checkpoints.save({run.part()}, at_step(3));
    }
    const std::string states = folder.path() + "/states.safetensors";
    if (root.rank() == 0) {
      // The same file with a number of steps, as torch.optim.AdamW counts them: a scalar in f32.
      const SafetensorsFile file(folder.path() + "/step-00000003/optimizer.safetensors");
      SafetensorsHeader header{file.tensors(), {}};
      header.tensors["step"] = {DType::f32, Shape{}, 0, 0};
      const std::string bytes = make_safetensors_header(header);
      std::ofstream out(states, std::ios::binary);
      std::string data(header.tensors.at("step").last, '\0');
      for (const auto& [name, tensor] : header.tensors)
        data.resize(std::max<size_t>(data.size(), tensor.last));
      const float steps = 3;
      std::memcpy(data.data() + header.tensors.at("step").first, &steps, sizeof steps);
      for (const auto& [name, tensor] : file.tensors())
        file.read(tensor, 0, tensor.last - tensor.first, data.data() + header.tensors.at(name).first);
      out << bytes << data;
    }
    root.barrier();
    const TrainingRun other(root, c);
    for (size_t i = 0; i < run.optimizer->parameters().size(); ++i) {
      const ParameterPtr& from = run.optimizer->parameters()[i].parameter;
      other.model->inspect().assign(*other.optimizer->parameters()[i].parameter, from->shard,
                                    other.model->device().stream());
    }
    load_optimizer(*other.model, *other.optimizer, states);
    EXPECT_EQ(other.optimizer->steps(), 3);
    EXPECT_TRUE(other.bytes() == run.bytes());
    const Error missing =
        error_of([&] { load_optimizer(*other.model, *other.optimizer, folder.path() + "/no"); });
    EXPECT_EQ(missing.code(), Code::io);
    EXPECT_FALSE(root.error().has_value());
  });
}

}  // namespace
}  // namespace gangway::test
