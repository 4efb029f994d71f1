#include "families/family.h"

namespace gangway {

Family qwen2_family() {
  Family f = decoder_family("qwen2", "Qwen2ForCausalLM", {.kv_heads = 32, .max_positions = 32768});
  f.options.qkv_bias = true;
  f.fixed.push_back(
      {.name = "mlp_bias", .values = {false}, .known = "a qwen2 has biases of q, k and v only"});
  f.fixed.push_back(
      {.name = "use_mrope", .values = {false}, .known = "this library has one position for each token"});
  // Transformers gives q, k and v biases whatever attention_bias says. The last two say which layers have the
  // window, and a window that is no shorter than the positions changes no layer.
  f.harmless = {"attention_bias", "max_window_layers", "layer_types"};
  f.window = WindowKeys::size_and_switch;
  return f;
}

}  // namespace gangway
