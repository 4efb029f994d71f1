// Loading folders: several files with an index, files of other programs, published models.
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "checkpoint/config_json.h"
#include "checkpoint/file_calls.h"
#include "checkpoint/model_io.h"
#include "checkpoint/safetensors.h"
#include "data/data_path.h"

namespace gangway::test {
namespace {

// Splits a saved file in two by hand, with an index.
void make_sharded(const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  const SafetensorsFile whole(path);
  nlohmann::json index;
  std::ofstream files[2] = {std::ofstream(folder + "/model-00001-of-00002.safetensors", std::ios::binary),
                            std::ofstream(folder + "/model-00002-of-00002.safetensors", std::ios::binary)};
  for (size_t part = 0; part < 2; ++part) {
    SafetensorsHeader header;
    size_t i = 0;
    for (const auto& [name, tensor] : whole.tensors())
      if (i++ % 2 == part) {
        header.tensors[name] = tensor;
        index["weight_map"][name] = text("model-0000", part + 1, "-of-00002.safetensors");
      }
    files[part] << make_safetensors_header(header);
    for (const auto& [name, tensor] : header.tensors) {
      const StoredTensor& from = whole.tensors().at(name);
      std::vector<char> bytes(from.last - from.first);
      whole.read(from, 0, bytes.size(), bytes.data());
      files[part].write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
  index["metadata"]["total_size"] = 1;
  std::ofstream(path + ".index.json") << index.dump();
  unlink(path.c_str());
}

TEST(LoadModel, ReadsAFolderOfShards) {
  const TemporaryFolder folder;
  std::vector<double> saved;
  run_ranks(1, [&](Gang& root) {
    const auto model = llama(root, seeded(13));
    save_model(*model, folder.path(), {});
    saved = all_values(*model);
  });
  make_sharded(folder.path());
  run_ranks(3, [&](Gang& root) {
    const auto model = llama(root, seeded(14));
    load_model(*model, folder.path());
    EXPECT_EQ(all_values(*model), saved);
  });
}

TEST(LoadModel, AnIndexCannotLeaveItsFolderOrLie) {
  struct Row {
    const char* index;
    const char* words;
  };
  const Row table[] = {
      {"", "is not JSON"},
      {"[]", "is no JSON object"},
      {R"({"weight_map": 3})", "has no object weight_map"},
      {R"({"weight_map": {"a": 3}})", "weight_map.\"a\" is not text"},
      {R"({"weight_map": {"a": "../model.safetensors"}})", "not a file of this folder"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "not a file of this folder"},
      {R"({"weight_map": {"a": ".."}})", "not a file of this folder"},
      {R"({"weight_map": {"a": ""}})", "not a file of this folder"},
      {R"({"weight_map": {"a": "x\u0000y"}})", "not a file of this folder"},
      {R"({"weight_map": {"a": "f", "a": "g"}})", "\"a\" stands there twice"},
      {R"({"weight_map": {"a": "f"}, "x": [[[[[[[[[[[[1]]]]]]]]]]]]})", "nested over 8 deep"},
      {"{} \0 more", "is not JSON at its byte 3"},
  };
  for (const Row& row : table) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/model.safetensors.index.json")
        << (row.words == std::string("is not JSON at its byte 3") ? std::string("{} \0 more", 9) : row.index);
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(15));
      const Error error = error_of([&] { load_model(*model, folder.path()); });
      EXPECT_EQ(error.code(), Code::corrupt) << row.index;
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
    });
  }
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/model.safetensors.index.json")
      << R"({"weight_map": {"a": "absent.safetensors"}})";
  run_ranks(1, [&](Gang& root) {
    EXPECT_EQ(error_of([&] { load_model(*llama(root, seeded(15)), folder.path()); }).code(), Code::io);
  });
}

// transformers leaves lm_head.weight in the index of a tied model although it stores the embedding alone.
TEST(LoadModel, ATiedModelNeedsNoTensorForTheSecondNameThatTheIndexLists) {
  const TemporaryFolder folder;
  std::vector<double> saved;
  run_ranks(1, [&](Gang& root) {
    const auto model = llama(root, seeded(13), small_llama(/*tied=*/true));
    save_model(*model, folder.path(), {});
    saved = all_values(*model);
  });
  make_sharded(folder.path());
  const std::string index = folder.path() + "/model.safetensors.index.json";
  const auto list = [&](const char* tensor, const char* file) {
    nlohmann::json json = nlohmann::json::parse(read_all(index));
    json["weight_map"][tensor] = file;
    std::ofstream(index) << json.dump();
  };
  for (const char* file : {"model-00002-of-00002.safetensors", "model-00003-of-00003.safetensors"}) {
    list("lm_head.weight", file);
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(14), small_llama(/*tied=*/true));
      load_model(*model, folder.path());
      EXPECT_EQ(all_values(*model), saved);
      const auto untied = llama(root, seeded(14));
      const Error error = error_of([&] { load_model(*untied, folder.path(), {.ignore_config = true}); });
      EXPECT_EQ(error.code(), file[10] == '2' ? Code::corrupt : Code::io) << error.message();
    });
  }
  list("lm_head.weight", "model-00002-of-00002.safetensors");
  list("other", "model-00002-of-00002.safetensors");
  run_ranks(1, [&](Gang& root) {
    const auto model = llama(root, seeded(14), small_llama(/*tied=*/true));
    const Error error = error_of([&] { load_model(*model, folder.path()); });
    EXPECT_EQ(error.code(), Code::corrupt) << error.message();
    EXPECT_NE(error.message().find("places \"other\" in"), std::string::npos) << error.message();
    load_model(*model, folder.path(), {.ignore_extra = true});
  });
}

TEST(LoadModel, ATensorThatCannotBeReadIsRefusedOnlyWhereTheModelWantsIt) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  run_ranks(1, [&](Gang& root) { save_model(*llama(root, seeded(13)), folder.path(), {}); });
  const std::string whole = read_all(path);
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(whole.substr(8, length));
  const size_t data = whole.size() - 8 - length;
  const auto write = [&](const nlohmann::json& changed, size_t more) {
    const std::string text = changed.dump();
    length = text.size();
    std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), 8) << text
                                          << whole.substr(whole.size() - data) << std::string(more, 'x');
  };
  for (const char* dtype : {"F8_E8M0", "F4", "F6_E3M2", "U8"}) {
    const std::string name = dtype;
    nlohmann::json extra = header;
    extra["extra"] = {{"dtype", name}, {"data_offsets", {data, data + 24}}};
    const int bits = name == "F4" ? 4 : name == "F6_E3M2" ? 6 : 8;
    extra["extra"]["shape"] =
        name == "U8" ? nlohmann::json{1, 1, 1, 1, 1, 1, 1, 1, 24} : nlohmann::json::array({192 / bits});
    write(extra, 24);
    run_ranks(2, [&](Gang& root) {
      const auto model = llama(root, seeded(14));
      const Error error = error_of([&] { load_model(*model, path); });
      EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
      load_model(*model, path, {.ignore_extra = true});
    });
  }
  nlohmann::json wanted = header;
  wanted["model.norm.weight"]["dtype"] = "F8_E8M0";
  wanted["model.norm.weight"]["shape"] =
      nlohmann::json::array({4 * header["model.norm.weight"]["shape"][0].get<int>()});
  write(wanted, 0);
  run_ranks(2, [&](Gang& root) {
    const auto model = llama(root, seeded(14));
    const Error error = error_of([&] { load_model(*model, path, {.ignore_extra = true}); });
    EXPECT_EQ(error.code(), Code::not_supported) << error.message();
    EXPECT_NE(error.message().find("tensor \"model.norm.weight\" of "), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(" is F8_E8M0"), std::string::npos) << error.message();
  });
}

TEST(LoadModel, AFolderOfPyTorchsFilesIsToldWhatToDo) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"}) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/" + name) << "x";
    run_ranks(2, [&](Gang& root) {
      const Error error = error_of([&] { load_model(*llama(root, seeded(14)), folder.path()); });
      EXPECT_EQ(error.code(), Code::not_supported) << error.message();
      EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("save_pretrained"), std::string::npos) << error.message();
    });
  }
}

// tests/data/folders: as transformers saves models, with the logits that it computes of them in f64. Its rotary tables
// are f32: 3e-7 is what the reference files of tests/data agree to with it.
TEST(LoadModel, LogitsOfPublishedFoldersAreThoseOfTransformers) {
  for (const char* name : {"llama3_bf16_sharded", "qwen2_f16_tied", "llama_biases_f32", "mistral_bf16"}) {
    const std::string folder = test_data(std::string("folders/") + name);
    const std::string bytes = read_all(folder + "/expected.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
    const auto at = [&](const char* entry) {
      return bytes.data() + 8 + length + header[entry]["data_offsets"][0].get<size_t>();
    };
    std::vector<int64_t> tokens(40);
    std::vector<double> logits(40 * 19);
    std::memcpy(tokens.data(), at("tokens"), tokens.size() * 8);
    std::memcpy(logits.data(), at("logits"), logits.size() * 8);
    for (const int ranks : {1, 3})
      run_ranks(ranks, [&](Gang& root) {
        const auto model = llama(root, seeded(1, DType::f64), decoder_options_of_folder(folder));
        load_model(*model, folder);
        Stream& stream = model->device().stream();
        Context ctx = model->run().context(stream);
        StackScope scope(model->temporaries());
        const Tensor inputs[] = {tensor_of(*model, DType::i64, Shape{2, 20}, tokens.data())};
        const Tensor found = model->run().forward(ctx, inputs, nullptr).at(0);
        ASSERT_EQ(found.bytes(), logits.size() * 8) << name;
        const HostMemory host(found);
        double error = 0, norm = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
          const double x = host.data<double>()[i];
          error += (x - logits[i]) * (x - logits[i]);
          norm += logits[i] * logits[i];
        }
        // transformers makes its rotary angles in f32, whatever the model's dtype: about 1e-7 of each angle.
        EXPECT_LT(std::sqrt(error / norm), 1e-6) << name;
        EXPECT_GT(norm, 1);
        model->run().reshard();
      });
  }
}

TEST(LoadModel, AnIndexThatIsAFifoIsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder.path() + "/model.safetensors.index.json").c_str(), 0600), 0);
  run_ranks(1, [&](Gang& root) {
    const Error error = error_of([&] { load_model(*llama(root, seeded(21)), folder.path()); });
    EXPECT_EQ(error.code(), Code::io) << error.message();
  });
}

}  // namespace
}  // namespace gangway::test
