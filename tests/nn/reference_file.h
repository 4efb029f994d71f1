// The reference files of tests/data, read without the library: a Llama, its batches and optimizer, and what
// another framework made of them in f64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/place.h"
#include "nn/layers.h"

namespace gangway::test {

class Reference {
 public:
  struct Entry {
    std::vector<int64_t> dims;
    std::vector<double> values;  // i64 as f64: token ids are small
  };

  explicit Reference(const std::string& name) {
    std::ifstream file(test_data(name + ".safetensors"), std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + name);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, '\0');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const std::string data((std::istreambuf_iterator<char>(file)), {});
    const nlohmann::json json = nlohmann::json::parse(header);
    for (const auto& [key, value] : json.items())
      if (key != "__metadata__") entries[key] = entry_of(value, data);
    settings = nlohmann::json::parse(json.at("__metadata__").at("config").get<std::string>());
    config = llama();
  }

  const Entry& at(const std::string& name) const { return entries.at(name); }
  const std::vector<double>& values(const std::string& name) const { return at(name).values; }
  std::vector<int64_t> ids(const std::string& name) const {
    return {at(name).values.begin(), at(name).values.end()};
  }

  // Batches are [steps, batch, sequence].
  int64_t batch() const { return at("tokens").dims[1]; }
  int64_t sequence() const { return at("tokens").dims[2]; }
  // Rows [first, last) of one step.
  std::vector<int64_t> rows(const char* which, int64_t first, int64_t last, int64_t step = 0) const {
    const auto begin = at(which).values.begin() + step * batch() * sequence();
    return {begin + first * sequence(), begin + last * sequence()};
  }
  // Labels of step 0 that count.
  int64_t weight() const {
    int64_t n = 0;
    for (const int64_t label : rows("labels", 0, batch())) n += label != -100;
    return n;
  }

  DecoderOptions config;
  nlohmann::json settings;  // of the model and its optimizer
  std::map<std::string, Entry> entries;

 private:
  static Entry entry_of(const nlohmann::json& described, const std::string& data) {
    Entry entry;
    entry.dims = described.at("shape").get<std::vector<int64_t>>();
    const auto range = described.at("data_offsets").get<std::vector<size_t>>();
    const bool integers = described.at("dtype") == "I64";
    entry.values.resize((range[1] - range[0]) / 8);
    for (size_t i = 0; i < entry.values.size(); ++i) {
      int64_t bits;
      std::memcpy(&bits, data.data() + range[0] + 8 * i, 8);
      if (integers)
        entry.values[i] = static_cast<double>(bits);
      else
        std::memcpy(&entry.values[i], &bits, 8);
    }
    return entry;
  }

  DecoderOptions llama() const {
    DecoderOptions c;
    c.vocab = settings.at("vocab_size");
    c.dim = settings.at("hidden_size");
    c.layers = settings.at("num_hidden_layers");
    c.heads = settings.at("num_attention_heads");
    c.kv_heads = settings.at("num_key_value_heads");
    c.ffn = settings.at("intermediate_size");
    c.eps = settings.at("rms_norm_eps");
    c.rope.theta = settings.at("rope_theta");
    c.max_positions = settings.at("max_position_embeddings");
    c.tied = settings.at("tie_word_embeddings");
    c.qkv_bias = settings.at("attention_bias");
    return c;
  }
};

// What bf16 and f16 cost PyTorch (tests/data/make_half.py): on a reference file, and over training.
struct HalfErrors {
  double loss = 0;                          // relative
  std::map<std::string, double> gradients;  // normwise
};
struct HalfLimits {
  nlohmann::json of;
  HalfErrors steps(const std::string& reference) const {
    const nlohmann::json at = of.at("steps").at(reference);
    return {at.at("loss"), at.at("gradients")};
  }
  // The largest deviation of the loss over the steps of any of the runs.
  double training() const {
    const std::vector<double> of_seeds = of.at("training");
    return *std::max_element(of_seeds.begin(), of_seeds.end());
  }
};
inline HalfLimits half_limits(DType dtype) {
  std::ifstream file(test_data("half.json"));
  if (!file) throw std::runtime_error("cannot open half.json");
  return {nlohmann::json::parse(file).at(name(dtype))};
}
// Both round as often, but not at the same places: errors of the same size that know nothing of each other.
constexpr double kBesidePyTorch = 2;

}  // namespace gangway::test
