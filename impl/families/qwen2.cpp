#include "families/family.h"

namespace gangway {

Family qwen2_family() {
  Family f = decoder_family("qwen2", "Qwen2ForCausalLM",
                            {.vocab = 151936,
                             .ffn = 22016,
                             .kv_heads = 32,
                             .null_head_dim = ConfigKey::Null::refused,
                             .max_positions = 32768});
  f.options.qkv_bias = true;
  // The class of transformers reads none of them: q, k and v have biases, and nothing else has.
  f.harmless = {"attention_bias", "mlp_bias", "use_mrope"};
  f.window = WindowKeys::size_and_switch;
  return f;
}

}  // namespace gangway
