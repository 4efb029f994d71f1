#include "families/family.h"

namespace gangway {

Family llama_family() {
  Family f = decoder_family("llama", "LlamaForCausalLM", {.max_positions = 2048});
  add_attention_bias(f);
  f.keys.push_back({.name = "mlp_bias",
                    .member = &DecoderOptions::mlp_bias,
                    .missing = 0.0,
                    .null = ConfigKey::Null::missing});
  // The class of transformers does not read the keys of windows.
  f.harmless = {"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"};
  f.token_ids = {.bos = 1, .eos = 2};
  return f;
}

}  // namespace gangway
