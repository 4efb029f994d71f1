#include "families/family.h"

namespace gangway {

Family qwen3_family() {
  Family f =
      decoder_family("qwen3", "Qwen3ForCausalLM", {.kv_heads = 32, .head_dim = 128, .max_positions = 32768});
  f.options.qk_norm = true;
  add_attention_bias(f);
  f.harmless = {"max_window_layers",
                "layer_types"};  // they choose the layers with a window; a window that matters is refused
  f.window = WindowKeys::size_and_switch;
  f.plan +=
      "model.layers.*.self_attn.q_norm -> headwise\n"
      "model.layers.*.self_attn.k_norm -> headwise\n";
  return f;
}

}  // namespace gangway
