#include "families/family.h"

namespace gangway {

Family qwen2_family() {
  Family f = decoder_family("qwen2", "Qwen2ForCausalLM", {.kv_heads = 32, .max_positions = 32768});
  f.options.qkv_bias = true;
  f.fixed.push_back(
      {.name = "mlp_bias", .values = {false}, .known = "a qwen2 has biases of q, k and v only"});
  f.fixed.push_back(
      {.name = "use_mrope", .values = {false}, .known = "this library has one position for each token"});
  // In transformers, q, k and v have biases for any value of attention_bias. The other two keys choose the
  // layers that have the window. They change nothing here, because a window below max_positions is refused.
  f.harmless = {"attention_bias", "max_window_layers", "layer_types"};
  f.window = WindowKeys::size_and_switch;
  return f;
}

}  // namespace gangway
