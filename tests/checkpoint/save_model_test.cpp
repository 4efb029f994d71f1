// Saving sharded models: the same bytes from every mesh, files that others read, all or nothing.
#include <sys/resource.h>

#include <csignal>

#include "checkpoint/model_io.h"

namespace gangway::test {
namespace {

TEST(SaveModel, EveryMeshWritesTheSameBytes) {
  std::string first;
  struct Mesh {
    int ranks, replicas;
    Strategy strategy;
  };
  for (const Mesh& mesh : std::vector<Mesh>{{1, 1, Strategy::full_shard},
                                            {2, 1, Strategy::full_shard},
                                            {3, 1, Strategy::shard_grad_op},
                                            {4, 2, Strategy::full_shard},
                                            {3, 1, Strategy::no_shard},
                                            {8, 1, Strategy::full_shard}}) {
    const TemporaryFolder folder;
    run_ranks(mesh.ranks, [&](Gang& root) {
      const auto model = llama(root, seeded(5, DType::f32, mesh.strategy), small_llama(), mesh.replicas);
      save_model(*model, folder.path(), {});
    });
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
    EXPECT_EQ(stored.size(), model->parameters().size());
    for (const NamedParameter& named : model->parameters()) {
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

TEST(SaveModel, WritesHuggingFacesConfig) {
  const auto config_of = [](const LlamaConfig& config) {
    const TemporaryFolder folder;
    run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(1), config), folder.path(), {}); });
    return nlohmann::json::parse(read_all(folder.path() + "/config.json"));
  };
  LlamaConfig config = small_llama();
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
  config.qkv_bias = true;
  const nlohmann::json qwen = config_of(config);
  EXPECT_EQ(qwen["architectures"], nlohmann::json::array({"Qwen2ForCausalLM"}));
  EXPECT_EQ(qwen["tie_word_embeddings"], true);
  EXPECT_FALSE(qwen.contains("rope_scaling"));
  config.out_bias = true;
  EXPECT_EQ(config_of(config)["attention_bias"], true);
}

TEST(SaveModel, RefusalsAreAgreed) {
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(18));
    SaveOptions integers;
    integers.dtype = DType::i32;
    EXPECT_EQ(error_of([&] { save_model(*model, "/tmp/never_made", integers); }).code(),
              Code::invalid_argument);
    SaveOptions words;
    words.metadata = {{"note", "\xff"}};
    EXPECT_EQ(error_of([&] { save_model(*model, "/tmp/never_made", words); }).code(), Code::invalid_argument);
    EXPECT_EQ(error_of([&] { save_model(*model, "", {}); }).code(), Code::invalid_argument);
    EXPECT_EQ(error_of([&] { save_model(*model, "/proc/nowhere/here", {}); }).code(), Code::io);
    Model bare(make_llama(small_llama()), make_gangs(root));
    EXPECT_EQ(error_of([&] { save_model(bare, "/tmp/never_made", {}); }).code(), Code::invalid_state);
    EXPECT_NE(access("/tmp/never_made", F_OK), 0);
    EXPECT_FALSE(root.error().has_value());
  });
}

// A limit on file size stands in for a full disk: writes behind it fail.
TEST(SaveModel, AFailedWriteLeavesTheOldFileAndNoOther) {
  const TemporaryFolder folder;
  run_ranks(3, [&](Gang& root) { save_model(*llama(root, seeded(19)), folder.path(), {}); });
  const std::string before = read_all(folder.path() + "/model.safetensors");
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
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
    EXPECT_NE(error.message().find("save: writing "), std::string::npos) << error.message();
    root.barrier();
    if (root.rank() == 0) setrlimit(RLIMIT_FSIZE, &old);
    root.barrier();
    EXPECT_FALSE(root.error().has_value());
  });
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_TRUE(read_all(folder.path() + "/model.safetensors") == before);
}

}  // namespace
}  // namespace gangway::test
