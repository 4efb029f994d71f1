#include "nn/reference_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "data/place.h"

namespace gangway::test {

using nlohmann::json;

namespace {

Reference::Entry entry_of(const json& described, const std::string& data) {
  Reference::Entry entry;
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

LlamaConfig config_of(const json& settings) {
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

Reference::Optimizer optimizer_of(const json& settings) {
  const json& betas = settings.at("betas");
  return {settings.at("lr"),           betas[0], betas[1], settings.at("eps"), settings.at("weight_decay"),
          settings.at("max_grad_norm")};
}

std::ifstream open(const std::string& name) {
  std::ifstream file(test_data(name), std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + name);
  return file;
}

json half_limits(DType dtype) {
  std::ifstream file = open("half.json");
  return json::parse(file).at(name(dtype));
}

}  // namespace

Reference::Reference(const std::string& name) {
  std::ifstream file = open(name + ".safetensors");
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const std::string data((std::istreambuf_iterator<char>(file)), {});
  const json described = json::parse(header);
  for (const auto& [key, value] : described.items())
    if (key != "__metadata__") entries[key] = entry_of(value, data);
  const json settings = json::parse(described.at("__metadata__").at("config").get<std::string>());
  config = config_of(settings);
  optimizer = optimizer_of(settings);
}

std::vector<int64_t> Reference::rows(const char* which, int64_t first, int64_t last, int64_t step) const {
  const auto begin = at(which).values.begin() + step * batch() * sequence();
  return {begin + first * sequence(), begin + last * sequence()};
}

int64_t Reference::weight() const {
  int64_t n = 0;
  for (const int64_t label : rows("labels", 0, batch())) n += label != -100;
  return n;
}

HalfErrors half_errors(DType dtype, const std::string& reference) {
  const json limits = half_limits(dtype);
  const json& errors = limits.at("steps").at(reference);
  return {errors.at("loss"), errors.at("gradients").get<std::map<std::string, double>>()};
}

double half_training_error(DType dtype) {
  const auto of_seeds = half_limits(dtype).at("training").get<std::vector<double>>();
  return *std::max_element(of_seeds.begin(), of_seeds.end());
}

}  // namespace gangway::test
