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
  set_qk_norm(f, QkNorm::head);
  add_attention_bias(f);
  f.harmless = {"mlp_bias"};  // the class of transformers does not read it
  f.window = WindowKeys::size_and_switch;
  return f;
}

}  // namespace gangway
