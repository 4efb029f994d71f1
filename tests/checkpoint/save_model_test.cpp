// Saving sharded models: the same bytes from every mesh, files that others read, all or nothing.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <set>
#include <thread>

#include "checkpoint/model_io.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_folder.h"

namespace gangway::test {
namespace {

TEST(SaveModel, EveryMeshAndDeviceWritesTheSameBytes) {
  std::string first;
  struct Mesh {
    int ranks, replicas;
    Strategy strategy;
    std::string device = test_device();
    bool cpu_offload = false;
  };
  for (const Mesh& mesh : std::vector<Mesh>{{1, 1, Strategy::full_shard, "cpu"},
                                            {1, 1, Strategy::full_shard},
                                            {2, 1, Strategy::full_shard},
                                            {2, 1, Strategy::full_shard, test_device(), true},
                                            {3, 1, Strategy::shard_grad_op},
                                            {4, 2, Strategy::full_shard},
                                            {3, 1, Strategy::no_shard},
                                            {8, 1, Strategy::full_shard}}) {
    const TemporaryFolder folder;
    GangOptions options = thread_rank_options();
    options.device = mesh.device;
    run_ranks(
        mesh.ranks,
        [&](Gang& root) {
          ParallelOptions parallel = seeded(5, DType::f32, mesh.strategy);
          parallel.shard.cpu_offload = mesh.cpu_offload;
          const auto model = llama(root, parallel, small_llama(), mesh.replicas);
          save_model(*model, folder.path(), {});
        },
        options);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "model.safetensors"}));
    const std::string bytes = read_all(folder.path() + "/model.safetensors");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << mesh.ranks << " ranks, " << mesh.replicas << " replicas";
  }
}

TEST(SaveModel, AnIndependentReaderFindsTheValues) {
  const TemporaryFolder folder;
  run_ranks(3, [&](Gang& root) {
    const auto model = llama(root, seeded(6));
    SaveOptions options;
    options.metadata = {{"note", "half way"}};
    save_model(*model, folder.path(), options);
    const auto stored = read_plainly(folder.path() + "/model.safetensors");
    EXPECT_EQ(stored.size(), model->inspect().parameters().size());
    for (const NamedParameter& named : model->inspect().parameters()) {
      const std::vector<double> values = gathered(*model, *named.parameter);
      const std::vector<float>& found = stored.at(named.name);
      ASSERT_EQ(found.size(), values.size());
      EXPECT_TRUE(std::equal(found.begin(), found.end(), values.begin())) << named.name;
    }
  });
  const SafetensorsFile file(folder.path() + "/model.safetensors");
  EXPECT_EQ(file.metadata().at("note"), "half way");
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(SaveModel, WritesSeveralFilesWithAnIndexAboveTheLimit) {
  const TemporaryFolder one, several;
  run_ranks(3, [&](Gang& root) {
    const auto model = llama(root, seeded(6));
    save_model(*model, one.path(), {});
    save_model(*model, several.path(), {.dtype = {}, .metadata = {}, .max_file_bytes = 8000});
    save_model(*model, several.path(), {.dtype = {}, .metadata = {}, .max_file_bytes = 16000});
    const auto again = llama(root, seeded(7));
    load_model(*again, several.path());
    save_model(*again, several.path() + "/again", {});
  });
  EXPECT_TRUE(read_all(several.path() + "/again/model.safetensors") ==
              read_all(one.path() + "/model.safetensors"));
  const nlohmann::json index =
      nlohmann::json::parse(read_all(several.path() + "/model.safetensors.index.json"));
  std::set<std::string> files = {"again", "config.json", "model.safetensors.index.json"};
  uint64_t bytes = 0;
  for (const auto& [tensor, file] : index.at("weight_map").items()) {
    files.insert(file.get<std::string>());
    const StoredTensor stored =
        SafetensorsFile(several.path() + "/" + file.get<std::string>()).tensors().at(tensor);
    bytes += stored.last - stored.first;
  }
  EXPECT_GT(files.size(), 4u) << "there are several files of weights";
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
  EXPECT_EQ(several.names(), std::vector<std::string>(files.begin(), files.end()))
      << "none of the first save is left";
  run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(6)), several.path(), {}); });
  EXPECT_EQ(several.names(), (std::vector<std::string>{"again", "config.json", "model.safetensors"}));
}

TEST(SaveModel, WritesHuggingFacesConfig) {
  const auto config_of = [](const DecoderOptions& config) {
    const TemporaryFolder folder;
    run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(1), config), folder.path(), {}); });
    return nlohmann::json::parse(read_all(folder.path() + "/config.json"));
  };
  DecoderOptions config = small_llama();
  config.rope.factor = 8;
  const nlohmann::json plain = config_of(config);
  EXPECT_EQ(plain["architectures"], nlohmann::json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(plain["model_type"], "llama");
  EXPECT_EQ(plain["hidden_size"], 24);
  EXPECT_EQ(plain["intermediate_size"], 40);
  EXPECT_EQ(plain["num_hidden_layers"], 2);
  EXPECT_EQ(plain["num_attention_heads"], 4);
  EXPECT_EQ(plain["num_key_value_heads"], 2);
  EXPECT_EQ(plain["head_dim"], 6);
  EXPECT_EQ(plain["vocab_size"], 17);
  EXPECT_EQ(plain["tie_word_embeddings"], false);
  EXPECT_EQ(plain["attention_bias"], false);
  EXPECT_EQ(plain["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(plain["rope_scaling"]["factor"], 8.0);
  EXPECT_EQ(plain["torch_dtype"], "float32");
  config = small_llama(/*tied=*/true);
  config.family = "qwen2";
  config.qkv_bias = true;
  const nlohmann::json qwen = config_of(config);
  EXPECT_EQ(qwen["architectures"], nlohmann::json::array({"Qwen2ForCausalLM"}));
  EXPECT_EQ(qwen["tie_word_embeddings"], true);
  EXPECT_FALSE(qwen.contains("rope_scaling"));
  config.family = "llama";
  config.out_bias = true;
  EXPECT_EQ(config_of(config)["attention_bias"], true);
}

// Rank 1 alone gives what is refused, but for the folder, which is rank 0's to make.
TEST(SaveModel, RefusalsAreAgreed) {
  const TemporaryFolder folder;
  const std::string never = folder.path() + "/never";
  run_ranks(3, [&](Gang& root) {
    const auto model = llama(root, seeded(18));
    const bool bad = root.rank() == 1;
    const auto refuse = [&](Code code, const char* words, const std::string& path,
                            const SaveOptions& options) {
      const Error error = error_of([&] { save_model(*model, path, options); });
      EXPECT_EQ(error.code(), code) << error.message();
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
      EXPECT_FALSE(root.error().has_value());
    };
    SaveOptions integers, words, narrow, noted;
    if (bad) integers.dtype = DType::i32;
    if (bad) words.metadata = {{"note", "\xff"}};
    if (bad) narrow.dtype = DType::bf16;
    if (bad) noted.metadata = {{"note", "longer"}};
    refuse(Code::invalid_argument, "i32", never, integers);
    refuse(Code::invalid_argument, "UTF-8", never, words);
    refuse(Code::invalid_argument, "", bad ? "" : never, {});
    refuse(Code::mismatch, "rank 0 has dtype the master's, rank 1 has dtype bf16", never, narrow);
    refuse(Code::mismatch, "rank 1 has metadata note longer", never, noted);
    refuse(Code::io, "/proc/nowhere", root.rank() == 0 ? "/proc/nowhere/here" : never, {});
    root.barrier();  // rank 0 has removed the folder that it had made
    EXPECT_NE(access(never.c_str(), F_OK), 0);
    root.barrier();
    save_model(*model, never, {});
    Model bare(make_decoder(small_llama()), make_gangs(root));
    EXPECT_EQ(error_of([&] { save_model(bare, never, {}); }).code(), Code::invalid_state);
  });
}

// SIGXFSZ is as it was at start: it would end the process.
TEST(SaveModel, AWriteOverTheLimitOfFileSizesIsIoOnAllRanksAndLeavesTheOldFiles) {
  const TemporaryFolder folder;
  run_ranks(3, [&](Gang& root) { save_model(*llama(root, seeded(19)), folder.path(), {}); });
  const std::string before = read_all(folder.path() + "/model.safetensors");
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  run_ranks(3, [&](Gang& root) {
    const auto model = llama(root, seeded(20));
    root.barrier();
    if (root.rank() == 0) {
      const rlimit small{before.size() / 2, old.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    root.barrier();
    const Error error = error_of([&] { save_model(*model, folder.path(), {}); });
    EXPECT_EQ(error.code(), Code::io) << error.message();
    EXPECT_EQ(error.system_error, EFBIG);
    EXPECT_NE(error.message().find("save: writing "), std::string::npos) << error.message();
    EXPECT_NE(error.path.find(folder.path() + "/"), std::string::npos) << "the path is told to all ranks";
    sigset_t pending;
    sigpending(&pending);
    EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
    root.barrier();
    if (root.rank() == 0) setrlimit(RLIMIT_FSIZE, &old);
    root.barrier();
    EXPECT_FALSE(root.error().has_value());
  });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_TRUE(read_all(folder.path() + "/model.safetensors") == before);
}

// A file system of its own for a thread and those that it starts.
bool mount_small(const std::string& folder, const char* size) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", folder.c_str(), "tmpfs", 0, text("size=", size).c_str()) == 0;
}

TEST(SaveModel, AFullDiskIsIoOnAllRanksAndLeavesTheOldFiles) {
  const TemporaryFolder disk;
  bool mounted = false;
  std::thread([&] {
    if (!(mounted = mount_small(disk.path(), "64k"))) return;
    const std::string folder = disk.path() + "/model";
    run_ranks(3, [&](Gang& root) {
      save_model(*llama(root, seeded(19)), folder, {});  // about 40 KiB: there is no room for two
      const std::string before = read_all(folder + "/model.safetensors");
      const Error error = error_of([&] { save_model(*llama(root, seeded(20)), folder, {}); });
      EXPECT_EQ(error.code(), Code::io) << error.message();
      EXPECT_EQ(error.system_error, ENOSPC) << error.message();
      EXPECT_TRUE(read_all(folder + "/model.safetensors") == before);
      EXPECT_FALSE(root.error().has_value());
      load_model(*llama(root, seeded(20)), folder);
    });
    EXPECT_EQ(names_in(folder), (std::vector<std::string>{"config.json", "model.safetensors"}));
  }).join();
  if (!mounted) GTEST_SKIP() << "this user may not mount a file system";
}

TEST(SaveModel, ReplacesAnEarlierCheckpointWhollyAndNothingElse) {
  const TemporaryFolder folder;
  const auto put = [&](const std::string& name) { std::ofstream(folder.path() + "/" + name) << name; };
  for (const char* name : {"model.safetensors.index.json", "model-00001-of-00002.safetensors",
                           "model-00002-of-00002.safetensors", "model-1-of-2.safetensors", "tokenizer.json"})
    put(name);
  std::filesystem::create_directory(folder.path() + "/original");
  put("original/consolidated.pth");
  std::filesystem::create_symlink("tokenizer.json", folder.path() + "/link");
  run_ranks(2, [&](Gang& root) { save_model(*llama(root, seeded(28)), folder.path() + "/", {}); });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "link", "model-1-of-2.safetensors",
                                                      "model.safetensors", "original", "tokenizer.json"}));
  EXPECT_EQ(read_all(folder.path() + "/link"), "tokenizer.json");
  EXPECT_EQ(read_all(folder.path() + "/original/consolidated.pth"), "original/consolidated.pth");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path() + "/model.safetensors"));
}

// A folder as people publish models, with a model of it.
void publish(const std::string& folder, const DecoderOptions& options) {
  run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(30), options), folder, {}); });
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
  };
  std::string config = read_all(folder + "/config.json");
  config.insert(config.rfind('}'),
                R"(, "eos_token_id": [39, 37], "id2label": {"0": "x"}, "my_own_field": {"a": 1})");
  put("config.json", config);
  put("generation_config.json", R"({"temperature": 0.6})");
  put("tokenizer.json", "{}");
  put("caf\xe9.txt", "a name that is not UTF-8");
  put("training_args.bin", "x");
  put(".hidden.json", "x");
}

nlohmann::json json_of(const std::string& path) { return nlohmann::json::parse(read_all(path)); }

TEST(SaveModel, WritesWhatCameWithTheModelThatWasLoaded) {
  const TemporaryFolder from, to;
  publish(from.path(), small_llama());
  nlohmann::json before = json_of(from.path() + "/config.json");
  std::ofstream(to.path() + "/tokenizer.json") << "[1]";
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(31));
    load_model(*model, from.path());
    SaveOptions options;
    options.dtype = DType::bf16;
    save_model(*model, to.path(), options);
    save_model(*model, from.path(), options);
  });
  before["torch_dtype"] = "bfloat16";
  for (const std::string& folder : {from.path(), to.path()})
    EXPECT_EQ(json_of(folder + "/config.json"), before) << folder;
  EXPECT_EQ(to.names(), (std::vector<std::string>{"caf\xe9.txt", "config.json", "generation_config.json",
                                                  "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(read_all(to.path() + "/generation_config.json"), R"({"temperature": 0.6})");
  EXPECT_EQ(read_all(to.path() + "/tokenizer.json"), "[1]") << "the folder had one of its own";
  EXPECT_EQ(read_all(from.path() + "/tokenizer.json"), "{}");
}

TEST(SaveModel, KeepsTheKeysOfTheConfigThatItReplacesIfThatIsOfTheSameModel) {
  const TemporaryFolder folder;
  publish(folder.path(), small_llama());
  const nlohmann::json before = json_of(folder.path() + "/config.json");
  run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(31)), folder.path(), {}); });
  EXPECT_EQ(json_of(folder.path() + "/config.json"), before) << "the model was not loaded from anywhere";
  DecoderOptions other = small_llama();
  other.rope.theta += 1;
  run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(31), other), folder.path(), {}); });
  EXPECT_FALSE(json_of(folder.path() + "/config.json").contains("eos_token_id"));
}

TEST(SaveModel, AFolderThatIsGoneOrIgnoredBringsNothing) {
  const TemporaryFolder from, to;
  publish(from.path(), small_llama());
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(31));
    load_model(*model, from.path(), {.ignore_config = true});
    save_model(*model, to.path() + "/ignored", {});
    load_model(*model, from.path());
    root.barrier();
    if (root.rank() == 0) std::filesystem::remove_all(from.path());
    root.barrier();
    save_model(*model, to.path() + "/gone", {});
  });
  EXPECT_FALSE(json_of(to.path() + "/ignored/config.json").contains("eos_token_id"));
  EXPECT_TRUE(json_of(to.path() + "/gone/config.json").contains("eos_token_id"));
  for (const char* folder : {"/ignored", "/gone"})
    EXPECT_EQ(names_in(to.path() + folder), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(SaveModel, ALlamaWithABiasOfOAloneIsRefusedBeforeAnythingIsMade) {
  const TemporaryFolder folder;
  run_ranks(2, [&](Gang& root) {
    DecoderOptions options = small_llama();
    options.out_bias = true;
    const auto model = llama(root, seeded(31), options);
    const Error error = error_of([&] { save_model(*model, folder.path() + "/new", {}); });
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
    EXPECT_NE(error.message().find("out_bias but no qkv_bias"), std::string::npos) << error.message();
  });
  EXPECT_TRUE(folder.names().empty());
}

TEST(SaveModel, TakesEveryPathOfTheSystem) {
  const TemporaryFolder top;
  for (const std::string& name : {std::string("caf\xe9"), std::string("a\nb"), std::string("\"c d\"/e f"),
                                  std::string(255, 'n'), std::string("\xc5\xbc\xff/t/")}) {
    const std::string path = top.path() + "/" + name;
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(31));
      save_model(*model, path, {});
      load_model(*model, path);
    });
    EXPECT_TRUE(std::filesystem::exists(path + "/model.safetensors"));
  }
  const std::string bad = top.path() + "/caf\xe9/none/" + std::string(256, 'n');
  run_ranks(2, [&](Gang& root) {
    const Error error = error_of([&] { save_model(*llama(root, seeded(31)), bad, {}); });
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_EQ(error.system_error, ENAMETOOLONG);
    EXPECT_EQ(error.path, bad) << "the bytes of the path, although the text is UTF-8";
  });
}

TEST(SaveModel, AFolderInThePlaceOfAFileIsRefusedAndStays) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/model.safetensors");
  std::ofstream(folder.path() + "/model.safetensors/x") << "x";
  run_ranks(1, [&](Gang& root) {
    const Error error = error_of([&] { save_model(*llama(root, seeded(31)), folder.path(), {}); });
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_EQ(error.system_error, EISDIR) << error.message();
  });
  EXPECT_EQ(read_all(folder.path() + "/model.safetensors/x"), "x");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.safetensors"});
}

TEST(SaveModel, AnotherSaveIntoTheFolderMeanwhileIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/new/model";
  {
    const SaveFolder other(path);
    run_ranks(2, [&](Gang& root) {
      const Error error = error_of([&] { save_model(*llama(root, seeded(29)), path, {}); });
      EXPECT_EQ(error.code(), Code::invalid_state) << error.message();
      EXPECT_NE(error.message().find("another save into " + path), std::string::npos) << error.message();
    });
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"new"});
  EXPECT_TRUE(names_in(folder.path() + "/new").empty()) << "a folder made for a save that failed is gone";
  run_ranks(2, [&](Gang& root) { save_model(*llama(root, seeded(29)), path, {}); });
}

}  // namespace
}  // namespace gangway::test
