#include "families/family.h"

namespace gangway {

Family qwen3_family() {
  Family f = decoder_family("qwen3", "Qwen3ForCausalLM",
                            {.vocab = 151936,
                             .ffn = 22016,
                             .kv_heads = 32,
                             .head_dim = 128,
                             .null_head_dim = ConfigKey::Null::refused,
                             .max_positions = 32768});
  f.options.qk_norm = true;
  add_attention_bias(f);
  f.harmless = {"mlp_bias"};  // the class of transformers does not read it
  f.window = WindowKeys::size_and_switch;
  f.plan +=
      "model.layers.*.self_attn.q_norm -> headwise\n"
      "model.layers.*.self_attn.k_norm -> headwise\n";
  return f;
}

}  // namespace gangway
