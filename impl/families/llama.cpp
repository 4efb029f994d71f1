#include "families/family.h"

namespace gangway {

Family llama_family() {
  Family f = decoder_family("llama", "LlamaForCausalLM", {.max_positions = 2048});
  add_attention_bias(f);
  f.keys.push_back({.name = "mlp_bias", .member = &DecoderOptions::mlp_bias, .missing = 0.0});
  f.harmless = {"pretraining_tp"};
  return f;
}

}  // namespace gangway
