#include "families/family.h"

namespace gangway {

Family mistral_family() {
  Family f = decoder_family("mistral", "MistralForCausalLM", {.kv_heads = 8, .max_positions = 131072});
  f.fixed.push_back({.name = "attention_bias", .values = {false}, .known = "a mistral has no biases"});
  f.fixed.push_back({.name = "mlp_bias", .values = {false}, .known = "a mistral has no biases"});
  f.harmless = {"layer_types"};  // transformers reads only sliding_window
  f.window = WindowKeys::size;
  return f;
}

}  // namespace gangway
