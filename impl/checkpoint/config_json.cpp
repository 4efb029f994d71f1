#include "checkpoint/config_json.h"

#include <nlohmann/json.hpp>

namespace gangway {
namespace {

const char* torch_name(DType dtype) {
  if (dtype == DType::f64) return "float64";
  if (dtype == DType::bf16) return "bfloat16";
  return dtype == DType::f16 ? "float16" : "float32";
}

}  // namespace

std::string config_json(const LlamaConfig& config, DType dtype) {
  // Qwen2 always has biases on q, k and v and nowhere else; Llama's attention_bias means all four.
  const bool qwen = config.qkv_bias && !config.out_bias && !config.mlp_bias;
  nlohmann::ordered_json json;
  json["architectures"] = {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"};
  json["model_type"] = qwen ? "qwen2" : "llama";
  json["vocab_size"] = config.vocab;
  json["hidden_size"] = config.dim;
  json["intermediate_size"] = config.ffn;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["max_position_embeddings"] = config.max_positions;
  json["rms_norm_eps"] = config.eps;
  json["rope_theta"] = config.rope.theta;
  if (config.rope.factor > 1)
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", config.rope.factor},
                            {"low_freq_factor", config.rope.low_frequency_factor},
                            {"high_freq_factor", config.rope.high_frequency_factor},
                            {"original_max_position_embeddings", config.rope.original_positions}};
  json["tie_word_embeddings"] = config.tied;
  if (!qwen) {
    json["attention_bias"] = config.qkv_bias;
    if (config.out_bias != config.qkv_bias)
      json["attention_out_bias"] = config.out_bias;  // a field of our own
    json["mlp_bias"] = config.mlp_bias;
  }
  json["hidden_act"] = "silu";
  json["initializer_range"] = config.deviation;
  json["torch_dtype"] = torch_name(dtype);
  return json.dump(2) + "\n";
}

}  // namespace gangway
