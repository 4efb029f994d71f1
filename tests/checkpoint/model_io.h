// A folder that goes away, small models, and a reader of saved files that is not the library's.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "checkpoint/model_files.h"
#include "nn/small_llama.h"
#include "train/train_testing.h"

namespace gangway::test {

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out.push_back(entry.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char path[] = "/tmp/gangway_model_io_XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> names() const { return names_in(path_); }

 private:
  std::string path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::unique_ptr<Model> llama(Gang& root, const ParallelOptions& options,
                                    const DecoderOptions& config = small_llama(), int replicas = 1) {
  return make_model(make_decoder(config), make_gangs(root, replicas), options);
}

inline ParallelOptions seeded(uint64_t seed, DType master = DType::f32,
                              Strategy strategy = Strategy::full_shard) {
  ParallelOptions options = parallel(strategy, master);
  options.seed = seed;
  return options;
}

inline std::vector<double> all_values(Model& model) {
  std::vector<double> out;
  for (const NamedParameter& named : model.inspect().parameters())
    for (const double x : gathered(model, *named.parameter)) out.push_back(x);
  return out;
}

// A reader of its own: the header by another road (a document, not events), the bytes by address.
inline std::map<std::string, std::vector<float>> read_plainly(const std::string& path) {
  const std::string bytes = read_all(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(entry["dtype"], "F32");
    const size_t first = entry["data_offsets"][0], last = entry["data_offsets"][1];
    std::vector<float> values((last - first) / 4);
    std::memcpy(values.data(), bytes.data() + 8 + length + first, last - first);
    size_t count = 1;
    for (const size_t dim : entry["shape"]) count *= dim;
    EXPECT_EQ(count, values.size());
    out[name] = values;
  }
  return out;
}

}  // namespace gangway::test
