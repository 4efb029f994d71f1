#include "nn/reference_file.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "data/data_path.h"

namespace gangway::test {

using nlohmann::json;

namespace {

DecoderOptions config_of(const json& settings) {
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

Reference::Optimizer optimizer_of(const json& settings) {
  const json& betas = settings.at("betas");
  return {settings.at("lr"),           betas[0], betas[1], settings.at("eps"), settings.at("weight_decay"),
          settings.at("max_grad_norm")};
}

json half_limits(DType dtype) {
  std::ifstream file(test_data("half.json"));
  if (!file) throw std::runtime_error("cannot open half.json");
  return json::parse(file).at(name(dtype));
}

}  // namespace

Reference::Reference(const std::string& name) : TensorFile(name) {
  const json parsed = json::parse(settings);
  config = config_of(parsed);
  optimizer = optimizer_of(parsed);
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
