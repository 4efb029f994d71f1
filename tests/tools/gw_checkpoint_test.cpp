// gw-checkpoint from outside.
#include <sys/wait.h>

#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "checkpoint/run/run_folder.h"
#include "checkpoint/run/small_checkpoint.h"
#include "checkpoint/run/take_lease.h"
#include "checkpoint/source.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

struct Output {
  int status = -1;
  std::string text;  // of both streams
  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
};

Output run(const std::string& arguments) {
  Output output;
  FILE* const pipe =
      popen((placed("@build@/impl/tools/gw-checkpoint") + " " + arguments + " 2>&1").c_str(), "r");
  char piece[4096];
  while (const size_t count = fread(piece, 1, sizeof piece, pipe)) output.text.append(piece, count);
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

void expect(const std::string& arguments, int status, const std::vector<std::string>& words) {
  const Output output = run(arguments);
  EXPECT_EQ(output.status, status) << arguments << ": " << output.text;
  for (const std::string& text : words)
    EXPECT_TRUE(output.says(text)) << text << " is not in: " << output.text;
}

void flip(const std::string& path, size_t byte) {
  std::string bytes = read_all(path);
  bytes.at(byte) = static_cast<char>(bytes.at(byte) ^ 4);
  write_all(path, bytes);
}

// A run with the checkpoints 500 and 600, of other values.
class GwCheckpoint : public ::testing::Test {
 protected:
  GwCheckpoint() {
    RunFolder folder(run_);
    take_lease(folder, "test");
    for (const int seed : {1, 2}) {
      const int64_t step = 400 + 100 * seed;
      const std::string writing = folder.begin(step);
      write_checkpoint(writing, step, seed);
      folder.commit(step, writing);
    }
  }

  // Compares the weights of a folder of Hugging Face with those of step 500, as doubles.
  void expect_weights(const std::string& folder, std::optional<DType> dtype) const {
    const Source source = Source::open(folder);
    EXPECT_EQ(source.tensors().size(), small_tensors().size());
    for (const TensorSpecOnDisk& spec : small_tensors()) {
      const Source::Entry& entry = source.tensors().at(spec.name);
      const TensorSpecOnDisk wanted{spec.name, dtype && is_floating(spec.dtype) ? *dtype : spec.dtype,
                                    spec.shape};
      EXPECT_EQ(entry.tensor.dtype, wanted.dtype);
      std::vector<char> found(entry.tensor.last - entry.tensor.first);
      entry.file->read(entry.tensor, 0, found.size(), found.data());
      EXPECT_TRUE(found == values_of(wanted, 1)) << spec.name;
    }
  }

  const TemporaryFolder folder_;
  const std::string run_ = folder_.path() + "/run", a_ = run_ + "/step-00000500",
                    b_ = run_ + "/step-00000600", out_ = folder_.path() + "/out";
};

TEST_F(GwCheckpoint, ListNamesEachCheckpointAndDamage) {
  expect("list " + run_, 0,
         {"         500           50001", "         600           60002", "{\"dp_shard\":3}"});
  flip(a_ + "/state.json", 40);
  expect("list " + run_, 1, {"500  DAMAGED: " + a_ + "/state.json", "60002"});
  expect("list " + folder_.path() + "/none", 1, {"gw-checkpoint: " + folder_.path() + "/none is no folder"});
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/none"));
  expect("list", 2, {"run is required"});
}

TEST_F(GwCheckpoint, VerifyNamesAllDamage) {
  expect("verify " + a_, 0, {a_ + ": 10 files, ", ": whole"});
  expect("verify " + run_, 0, {b_ + ": 10 files"});
  flip(a_ + "/optimizer.safetensors", read_all(a_ + "/optimizer.safetensors").size() - 1);
  flip(a_ + "/teacher/model.safetensors", 20);
  std::filesystem::remove(a_ + "/tokenizer.json");
  EXPECT_FALSE(run("verify " + run_).says("step-00000500")) << "only the newest of a run";
  for (const char* threads : {"", " --threads 1", " --threads 5"})
    expect("verify --all " + run_ + threads, 1,
           {"optimizer.safetensors: tensor \"exp_avg_sq.one\" [0:1]: its hash differs",
            "teacher/model.safetensors: the header: its hash differs", "tokenizer.json is missing",
            a_ + ": 10 files", "DAMAGED", b_ + ": 10 files"});
  std::filesystem::remove(b_ + "/state.json");
  expect("verify " + b_, 1, {"gw-checkpoint: " + b_ + "/state.json is missing"});
  expect("verify --all " + run_, 1,
         {b_ + "/state.json is missing", b_ + ": DAMAGED", "tokenizer.json is missing"});
}

TEST_F(GwCheckpoint, DiffNamesTheFirstAndTheLargestDifference) {
  expect("diff " + a_ + " " + a_, 0, {"0 of 17 tensors differ; A and B are equal"});
  expect("diff " + a_ + " " + b_, 1,
         {"step: 500 in A, 600 in B", "texts.\"data\": position 500 in A, position 600 in B",
          "model \"embed.weight\" (f32 [7, 5]): 35 of 35 elements differ; first [0, 0]: 1000.75 in A, "
          "2000.75 in B; "
          "largest [0, 0]: 1000.75 in A, 2000.75 in B, by 1000",
          "14 of 17 tensors differ"});
  EXPECT_TRUE(run("diff --lines 1 " + a_ + " " + b_).says("... and 13 tensors that differ by less"));
  // The same values, split into other files by another mesh.
  const std::string other = folder_.path() + "/other";
  std::filesystem::copy(a_, other, std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(a_))
    if (entry.path().filename().string().starts_with("model"))
      std::filesystem::remove(other + "/" + entry.path().filename().string());
  CheckpointState state = read_state(a_);
  std::erase_if(state.files, [](const StoredFile& file) { return file.name.starts_with("model"); });
  for (const StoredFile& file : write_set(other, "model", small_tensors(), 0, 1, 5))
    state.files.insert(state.files.begin() + 1, file);
  state.mesh = "{}";
  write_all(other + "/state.json", to_json(state));
  verify_all(other);
  expect("diff " + a_ + " " + other, 0, {"0 of 17 tensors differ; A and B are equal"});
  // One element of two, and the bits of a zero.
  const std::string file = other + "/model.safetensors";
  std::string bytes = read_all(file);
  const size_t data = bytes.size() - 255;
  const auto put = [&](size_t element, float value) {
    std::memcpy(bytes.data() + data + 24 + 4 * element, &value, 4);
  };
  put(6, 1004.5f);
  put(17, 1008.f);
  write_all(file, bytes);
  expect("diff " + a_ + " " + other, 1,
         {"model \"embed.weight\" (f32 [7, 5]): 2 of 35 elements differ; first [1, 1]: 1003.75 in A, 1004.5 "
          "in B; "
          "largest [3, 2]: 1009.25 in A, 1008 in B, by 1.25",
          "1 of 17 tensors differ"});
}

TEST_F(GwCheckpoint, DiffTellsWhatOnlyOneHas) {
  expect("weights " + a_ + " " + out_, 0, {});
  expect(
      "diff " + a_ + " " + out_, 1,
      {"optimizer: only in A, with all its 8 tensors", "teacher/model: only in A, with all its 1 tensors"});
  expect("diff " + out_ + " " + out_ + "/model.safetensors", 0, {"0 of 8 tensors differ"});
  expect("diff " + a_ + " " + folder_.path() + "/none", 2, {"gw-checkpoint: "});
  const std::string x = folder_.path() + "/x.safetensors", y = folder_.path() + "/y.safetensors";
  write_set(folder_.path(), "x", {{"a", DType::f32, {3}}, {"b", DType::f32, {2, 2}}, {"c", DType::f32, {2}}},
            0, 1);
  write_set(folder_.path(), "y", {{"a", DType::f32, {3}}, {"b", DType::f32, {4}}, {"c", DType::bf16, {2}}}, 0,
            1);
  expect("diff " + x + " " + y, 1,
         {"model \"b\": shape [2, 2] in A, [4] in B",
          "model \"c\" (f32 in A, bf16 in B): 2 of 2 elements differ; first [0]: "});
}

TEST_F(GwCheckpoint, WeightsAreTheModelAlone) {
  expect("weights " + a_ + " " + out_ + "/", 0, {out_ + ": 8 tensors in 1 files"});
  expect_weights(out_, {});
  EXPECT_EQ(read_all(out_ + "/config.json"), read_all(a_ + "/config.json"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(out_))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
  expect("weights " + a_ + " " + out_, 1, {out_ + " exists already"});
  expect("weights --max-file-size 60B " + a_ + " " + out_ + "2", 0, {"8 tensors in 4 files"});
  expect_weights(out_ + "2", {});
  expect("weights --model teacher " + a_ + " " + out_ + "3", 0, {"1 tensors in 1 files"});
}

TEST_F(GwCheckpoint, ConvertRoundsTheWeightsAndKeepsTheConfig) {
  expect("convert --dtype bf16 " + a_ + " " + out_, 0, {"8 tensors"});
  expect_weights(out_, DType::bf16);
  const auto config = nlohmann::json::parse(read_all(out_ + "/config.json"));
  EXPECT_EQ(config, nlohmann::json::parse(
                        R"({"model_type": "qwen3", "torch_dtype": "bfloat16", "unknown": [1, 2]})"));
  EXPECT_EQ(read_all(out_ + "/tokenizer.json"), "{}");
  expect("convert --dtype f64 " + out_ + " " + out_ + "2", 0, {});
  expect("diff " + out_ + " " + out_ + "2", 1, {"(bf16 in A, f64 in B): 0 of 35 elements differ"});
  expect("convert " + a_ + " " + out_ + "3", 2, {"--dtype is required"});
  expect("convert --dtype int4 " + a_ + " " + out_ + "3", 2, {"--dtype"});
}

TEST_F(GwCheckpoint, ConvertChangesOneKeyOfTheConfigAndKeepsTheOrder) {
  const std::string x = folder_.path() + "/x", config = x + "/config.json";
  std::filesystem::create_directory(x);
  write_set(x, "model", {{"w", DType::f32, {2}}}, 0, 1);
  write_all(config, R"({"z":1E-5, "dtype":"float32","a" : {"":[true,{"b":"\u00e4"}],"c":{}},"n":1.50})");
  expect("convert --dtype bf16 " + x + " " + out_, 0, {});
  EXPECT_EQ(read_all(out_ + "/config.json"),
            "{\n  \"z\": 1e-05,\n  \"dtype\": \"bfloat16\",\n  \"a\": {\n    \"\": [\n      true,\n      {\n"
            "        \"b\": \"\xc3\xa4\"\n      }\n    ],\n    \"c\": {}\n  },\n  \"n\": 1.5\n}\n");
  write_all(config, "{}");
  expect("convert --dtype f64 " + x + " " + out_ + "2", 0, {});
  EXPECT_EQ(read_all(out_ + "2/config.json"), "{\n  \"torch_dtype\": \"float64\"\n}\n");
  for (const char* const bad : {"", "[]", "{"}) {
    write_all(config, bad);
    expect("convert --dtype bf16 " + x + " " + out_ + "3", 1, {config + ": it is no"});
  }
}

TEST_F(GwCheckpoint, ConvertRefusesDamageAndValuesThatDoNotFit) {
  const std::string x = folder_.path() + "/x";
  std::filesystem::create_directory(x);
  write_set(x, "model", {{"w", DType::f32, {3, 4}}}, 0, 70);
  expect("convert --dtype f16 " + x + " " + out_, 1,
         {"tensor \"w\" has the value 70000.1 at [0, 0], which f16 cannot hold"});
  EXPECT_FALSE(std::filesystem::exists(out_));
  const std::string file = a_ + "/model-00001-of-00004.safetensors";
  flip(file, read_all(file).size() - 1);
  expect("convert --dtype bf16 " + a_ + " " + out_, 1, {file + ": tensor \"embed.weight\""});
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"run", "x"})) << "what failed leaves nothing";
  expect("convert --no-verify --dtype bf16 " + a_ + " " + out_, 0, {});
  flip(b_ + "/optimizer.safetensors", 100);
  expect("weights " + b_ + " " + out_ + "2", 0, {});
}

}  // namespace
}  // namespace gangway::test
