// config.json of a Llama as Hugging Face's LlamaForCausalLM, Qwen2ForCausalLM or MistralForCausalLM has it. The table of
// the fields is in gangway/layers.h, at gw_llama_options_from_folder.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "nn/layers.h"

namespace gangway {

inline constexpr char kConfigName[] = "config.json";
inline constexpr uint64_t kConfigLimit = 1 << 20;  // bytes

std::string config_json(const LlamaConfig& config, DType dtype);

// Errors begin with `name`. CORRUPT: no such JSON; a field is missing, of the wrong kind or out of its range.
// NOT_SUPPORTED: a family, or a setting that changes values, which make_llama has no form of.
LlamaConfig parse_config_json(std::string_view json, const std::string& name);

// The config.json of a folder. IO as well.
LlamaConfig llama_config_of_folder(const std::string& folder);

// INVALID_ARGUMENT with both values: a model of `config` would not compute what `stated`, by the file `name`, says. What
// bounds or starts a model alone (max_position_embeddings, initializer_range) may differ.
void check_same_function(const LlamaConfig& stated, const LlamaConfig& config, const std::string& name);

}  // namespace gangway
