#include "families/family.h"

namespace gangway {

Family mistral_family() {
  Family f =
      decoder_family("mistral", "MistralForCausalLM", {.ffn = 14336, .kv_heads = 8, .max_positions = 131072});
  // Of these the class of transformers reads none: it has no biases, and a window in all layers or in none.
  f.harmless = {"attention_bias", "mlp_bias", "use_sliding_window", "max_window_layers", "layer_types"};
  f.window = WindowKeys::size;
  f.token_ids = {.bos = 1, .eos = 2};
  return f;
}

}  // namespace gangway
