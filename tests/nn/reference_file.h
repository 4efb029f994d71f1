// The reference files of tests/data, read without the library: a Llama, its batches and optimizer, and what
// another framework made of them in f64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/layers.h"
#include "support/tensor_file.h"

namespace gangway::test {

class Reference : public TensorFile {
 public:
  explicit Reference(const std::string& name) : TensorFile(name), config(llama()) {}

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

  LlamaConfig config;

 private:
  LlamaConfig llama() const {
    LlamaConfig c;
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
