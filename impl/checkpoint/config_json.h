// config.json of a Llama as Hugging Face's LlamaForCausalLM or Qwen2ForCausalLM reads it.
#pragma once

#include <string>

#include "nn/layers.h"

namespace gangway {

std::string config_json(const LlamaConfig& config, DType dtype);

}  // namespace gangway
