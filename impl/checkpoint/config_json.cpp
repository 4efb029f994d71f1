#include "checkpoint/config_json.h"

#include "checkpoint/json_text.h"

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
  JsonObject json(2);
  json.add("architectures", qwen ? "[\"Qwen2ForCausalLM\"]" : "[\"LlamaForCausalLM\"]");
  json.add("model_type", json_scalar(qwen ? "qwen2" : "llama"));
  json.add("vocab_size", json_scalar(config.vocab));
  json.add("hidden_size", json_scalar(config.dim));
  json.add("intermediate_size", json_scalar(config.ffn));
  json.add("num_hidden_layers", json_scalar(config.layers));
  json.add("num_attention_heads", json_scalar(config.heads));
  json.add("num_key_value_heads", json_scalar(config.kv_heads));
  json.add("head_dim", json_scalar(config.head_dim));
  json.add("max_position_embeddings", json_scalar(config.max_positions));
  json.add("rms_norm_eps", json_scalar(config.eps));
  json.add("rope_theta", json_scalar(config.rope.theta));
  if (config.rope.factor > 1) {
    JsonObject rope(4);
    rope.add("rope_type", json_scalar("llama3"));
    rope.add("factor", json_scalar(config.rope.factor));
    rope.add("low_freq_factor", json_scalar(config.rope.low_frequency_factor));
    rope.add("high_freq_factor", json_scalar(config.rope.high_frequency_factor));
    rope.add("original_max_position_embeddings", json_scalar(config.rope.original_positions));
    json.add("rope_scaling", std::move(rope).close());
  }
  json.add("tie_word_embeddings", json_scalar(config.tied));
  if (!qwen) {
    json.add("attention_bias", json_scalar(config.qkv_bias));
    if (config.out_bias != config.qkv_bias)
      json.add("attention_out_bias", json_scalar(config.out_bias));  // a field of our own
    json.add("mlp_bias", json_scalar(config.mlp_bias));
  }
  json.add("hidden_act", json_scalar("silu"));
  json.add("initializer_range", json_scalar(config.deviation));
  json.add("torch_dtype", json_scalar(torch_name(dtype)));
  return std::move(json).close() + "\n";
}

}  // namespace gangway
