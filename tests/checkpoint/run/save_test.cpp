// What a save writes: files that others read, the same bytes from every mesh and in every mode.
#include "checkpoint/run/run_testing.h"
#include "checkpoint/run/verify.h"
#include "checkpoint/safetensors.h"

namespace gangway::test {
namespace {

RunCase small_run() {
  RunCase c;
  return c;
}

// Saves a run after two steps.
void save(const std::string& folder, const RunCase& c, CheckpointsOptions options, bool two_parts = false) {
  options.folder = folder;
  run_ranks(c.ranks(), [&](Gang& root) {
    const TrainingRun run(root, c);
    run.steps(0, 1);
    const std::unique_ptr<Model> teacher =
        two_parts ? make_model(make_decoder(c.config()), run.gangs(), seeded(9)) : nullptr;
    Checkpoints checkpoints(run.gangs(), options);
    std::vector<CheckpointPart> parts = {run.part()};
    if (two_parts) parts.push_back({"teacher", teacher.get()});
    CheckpointState state = at_step(5);
    state.tokens = 96;
    state.texts = {{"data", "{\"row\": 12}"}};
    state.user = "the caller's";
    checkpoints.save(parts, state);
    checkpoints.wait();  // for the saves that are not synchronous
  });
}
CheckpointsOptions plain() { return synchronous_in(""); }

TEST(SaveCheckpoint, WritesFilesThatAnIndependentReaderReads) {
  const TemporaryFolder folder;
  const RunCase c = small_run();
  save(folder.path(), c, plain());
  const std::string path = folder.path() + "/step-00000005";
  EXPECT_EQ(names_in(path), (std::vector<std::string>{"config.json", "model.safetensors",
                                                      "optimizer.safetensors", "state.json"}));
  const auto model = read_plainly(path + "/model.safetensors");
  const auto states = read_plainly(path + "/optimizer.safetensors");
  EXPECT_EQ(states.size(), 2 * model.size());
  run_ranks(1, [&](Gang& root) {
    RunCase alone = c;
    alone.mesh = {.pp = 1, .shards = 1};
    const TrainingRun run(root, alone);
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    checkpoints.restore({run.part()}, {});
    for (size_t i = 0; i < run.optimizer->parameters().size(); ++i) {
      const NamedParameter& named = run.optimizer->parameters()[i];
      EXPECT_EQ(copy_out<float>(named.parameter->shard), model.at(named.name)) << named.name;
      for (const Optimizer::Slot& slot : run.optimizer->state(i))
        EXPECT_EQ(copy_out<float>(slot.tensor), states.at(slot.name + "." + named.name)) << named.name;
    }
  });
  const CheckpointState state = read_state(path);
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.tokens, 96);
  EXPECT_EQ(state.texts.at("data"), "{\"row\": 12}");
  EXPECT_EQ(state.user, "the caller's");
  EXPECT_EQ(state.optimizers.at("").kind, "adamw");
  EXPECT_EQ(state.optimizers.at("").steps, 1);
  verify_checkpoint(path, state);
}

// The bytes of the files but state.json, which has the mesh and the blocks of the ranks.
std::vector<std::string> contents(const std::string& folder) {
  std::vector<std::string> all;
  for (const std::string& name : names_in(folder + "/step-00000005"))
    if (name != "state.json") all.push_back(name + read_all(folder + "/step-00000005/" + name));
  return all;
}

TEST(SaveCheckpoint, EveryMeshAndModeWritesTheSameBytes) {
  std::vector<std::string> first;
  struct Way {
    PipelineCase mesh;
    bool synchronous = false;
  };
  for (const Way& way : std::vector<Way>{{{.pp = 1, .shards = 1}},
                                         {{.pp = 1, .shards = 3}},
                                         {{.pp = 1, .shards = 2, .replicas = 2}, true},
                                         {{.pp = 1, .shards = 2, .strategy = Strategy::no_shard}},
                                         {{.pp = 1, .tp = 2}, true}}) {
    const TemporaryFolder folder;
    run_ranks(way.mesh.ranks(), [&](Gang& root) {
      RunCase c = small_run();
      c.mesh = way.mesh;
      c.vocab = 3001;                  // large enough for direct writes, and divided by no number of ranks
      const TrainingRun run(root, c);  // without a step, whose bits depend on the mesh
      CheckpointsOptions options = in_folder(folder.path());
      options.synchronous = way.synchronous;
      Checkpoints checkpoints(run.gangs(), options);
      checkpoints.save({run.part()}, at_step(5));
      checkpoints.wait();
    });
    const CheckpointState state = read_state(folder.path() + "/step-00000005");
    verify_checkpoint(folder.path() + "/step-00000005", state);
    if (first.empty()) first = contents(folder.path());
    EXPECT_TRUE(contents(folder.path()) == first) << way.mesh.text();
  }
}

TEST(SaveCheckpoint, StoresTheModelInAnotherDtypeAndTheSameStates) {
  const TemporaryFolder wide;
  save(wide.path(), small_run(), plain());
  for (const bool synchronous : {false, true}) {
    const TemporaryFolder narrow;
    CheckpointsOptions options = plain();
    options.model_dtype = DType::bf16;
    options.synchronous = synchronous;
    save(narrow.path(), small_run(), options);
    const std::string at = "/step-00000005/optimizer.safetensors";
    EXPECT_TRUE(read_all(narrow.path() + at) == read_all(wide.path() + at));
    const SafetensorsFile file(narrow.path() + "/step-00000005/model.safetensors");
    const auto values = read_plainly(wide.path() + "/step-00000005/model.safetensors");
    for (const auto& [name, stored] : file.tensors()) {
      ASSERT_EQ(stored.dtype, DType::bf16);
      std::vector<bf16_t> rounded(values.at(name).size());
      file.read(stored, 0, stored.last - stored.first, rounded.data());
      for (size_t i = 0; i < rounded.size(); i += 7)
        EXPECT_EQ(to_f32(rounded[i]), to_f32(to_bf16(values.at(name)[i]))) << name;
    }
  }
}

TEST(SaveCheckpoint, SplitsFilesAboveASize) {
  const TemporaryFolder folder;
  CheckpointsOptions options = plain();
  options.max_file_bytes = 8'000;
  save(folder.path(), small_run(), options);
  const std::string path = folder.path() + "/step-00000005";
  EXPECT_TRUE(std::filesystem::exists(path + "/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(path + "/optimizer.safetensors.index.json"));
  verify_checkpoint(path, read_state(path));
  run_ranks(3, [&](Gang& root) {
    RunCase c = small_run();
    c.mesh.shards = 3;
    c.seed = 8;
    const TrainingRun run(root, c);
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    EXPECT_EQ(checkpoints.restore({run.part()}, {})->state.step, 5);
  });
}

TEST(SaveCheckpoint, HasAFolderForEachNamedPart) {
  const TemporaryFolder folder;
  save(folder.path(), small_run(), plain(), /*two_parts=*/true);
  EXPECT_EQ(names_in(folder.path() + "/step-00000005/teacher"),
            (std::vector<std::string>{"config.json", "model.safetensors"}));
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    const auto teacher = make_model(make_decoder(small_run().config()), run.gangs(), seeded(1));
    const auto expected = make_model(make_decoder(small_run().config()), run.gangs(), seeded(9));
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    checkpoints.restore({run.part(), {"teacher", teacher.get()}}, {});
    EXPECT_EQ(all_values(*teacher), all_values(*expected));
  });
}

TEST(SaveCheckpoint, CarriesTokenizerFilesAlong) {
  const TemporaryFolder folder, base;
  for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja", "config.json",
                           "model.safetensors", "model.safetensors.index.json", ".hidden.json"})
    std::ofstream(base.path() + "/" + name) << name;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    Checkpoints checkpoints(run.gangs(), synchronous_in(folder.path()));
    CheckpointPart part = run.part();
    part.carry_from = base.path();
    checkpoints.save({part}, at_step(1));
  });
  const std::string path = folder.path() + "/step-00000001";
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"chat_template.jinja", "config.json", "generation_config.json",
                                      "model.safetensors", "optimizer.safetensors", "state.json",
                                      "tokenizer.json"}));
  EXPECT_EQ(read_all(path + "/tokenizer.json"), "tokenizer.json");
  EXPECT_NE(read_all(path + "/config.json"), "config.json");
  verify_checkpoint(path, read_state(path));
}

TEST(SaveCheckpoint, CarriesAlongWhatCameWithTheModelThatWasLoaded) {
  const TemporaryFolder base, folder, other;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    save_model(*run.part().model, base.path(), {});
    if (root.rank() == 0) {
      std::string config = read_all(base.path() + "/config.json");
      config.insert(config.rfind('}'), R"(, "eos_token_id": [39, 37])");
      std::ofstream(base.path() + "/config.json") << config;
      std::ofstream(base.path() + "/caf\xe9.json") << "a name that is not UTF-8";
    }
    root.barrier();
    load_model(*run.part().model, base.path());
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    checkpoints.save({run.part()}, at_step(1));
    checkpoints.wait();
    const TrainingRun again(root, small_run());
    Checkpoints others(again.gangs(), in_folder(other.path()));
    others.save({again.part()}, at_step(1));
    others.wait();
  });
  const std::string path = folder.path() + "/step-00000001";
  EXPECT_EQ(names_in(path), (std::vector<std::string>{"caf\xe9.json", "config.json", "model.safetensors",
                                                      "optimizer.safetensors", "state.json"}));
  EXPECT_NE(read_all(path + "/config.json").find("\"eos_token_id\": [39, 37]"), std::string::npos);
  verify_checkpoint(path, read_state(path));
  EXPECT_EQ(read_all(other.path() + "/step-00000001/config.json").find("eos_token_id"), std::string::npos);
}

TEST(SaveCheckpoint, KeepsTheNewest) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    CheckpointsOptions options = synchronous_in(folder.path());
    options.keep = 2;
    options.every = 3;
    Checkpoints checkpoints(run.gangs(), options);
    for (int64_t step = 0; step <= 12; ++step) {
      run.part().optimizer->set_steps(step);
      if (checkpoints.due(step)) checkpoints.save({run.part()}, at_step(step));
    }
  });
  EXPECT_EQ(complete(folder.path()), (std::vector<std::string>{"step-00000009", "step-00000012"}));
}

TEST(SaveCheckpoint, CountsItsCopyInTheModelsMemory) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    EXPECT_EQ(run.model->inspect().memory().host, 0u);
    {
      Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
      checkpoints.save({run.part()}, at_step(1));
      EXPECT_GE(checkpoints.buffer_bytes(), run.bytes().size());
      EXPECT_LT(checkpoints.buffer_bytes(), run.bytes().size() + 64 * 100);
      EXPECT_EQ(run.model->inspect().memory().host, checkpoints.buffer_bytes());
      checkpoints.wait();
    }
    EXPECT_EQ(run.model->inspect().memory().host, 0u);
  });
}

TEST(SaveCheckpoint, OfAnEarlierStepMovesTheNewerOnesAside) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const RunCase c = small_run();
    const TrainingRun run(root, c);
    CheckpointsOptions options = synchronous_in(folder.path());
    options.keep = 1;
    Checkpoints checkpoints(run.gangs(), options);
    for (const int64_t step : {900, 5}) checkpoints.save({run.part()}, at_step(step));
    EXPECT_EQ(checkpoints.restore({run.part()}, {})->state.step, 5);
  });
  EXPECT_EQ(names_in(folder.path()).size(), 2u);  // step 5, and step 900 aside
}

TEST(SaveCheckpoint, IsRefusedWhileTheModelHasTheAverages) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const RunCase c = small_run();
    const TrainingRun run(root, c);
    OptimizerOptions options;
    options.ema_decay = 0.5;
    const auto optimizer =
        make_optimizer("sgd", run.model->inspect().parameters(), options, run.model->ops());
    optimizer->swap_ema(run.model->device().stream());
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    const Error error = error_of([&] {
      checkpoints.save({{"", run.model.get(), optimizer.get()}}, at_step(1));
    });
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_NE(error.message().find("swap them back first"), std::string::npos) << error.message();
  });
}

TEST(SaveCheckpoint, OfATextThatIsNotUtf8IsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    const TrainingRun run(root, small_run());
    Checkpoints checkpoints(run.gangs(), in_folder(folder.path()));
    CheckpointState state = at_step(1);
    state.texts = {{"data", "\xff"}};
    EXPECT_THROW(checkpoints.save({run.part()}, state), Error);
    checkpoints.wait();
  });
  EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace gangway::test
