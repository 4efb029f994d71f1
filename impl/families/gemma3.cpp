#include "families/family.h"

namespace gangway {

Family gemma3_family() {
  using O = DecoderOptions;
  Family f = decoder_family("gemma3_text", "Gemma3ForCausalLM",
                            {.vocab = 262208,
                             .dim = 2304,
                             .layers = 26,
                             .heads = 8,
                             .ffn = 9216,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .null_head_dim = ConfigKey::Null::refused,
                             .max_positions = 131072,
                             .tied = true});
  make_gemma(f);
  make_gemma_sandwich(f);
  set_qk_norm(f, QkNorm::head);
  f.keys.push_back({.name = "final_logit_softcapping",
                    .member = &O::logit_cap,
                    .missing = 0.0,
                    .null = ConfigKey::Null::zero,
                    .zero_is_null = true});
  f.keys.push_back({.name = "rope_local_base_freq", .member = &O::window_rope_theta, .missing = 10000.0});
  f.options.window_layers = "wwwwwf";
  f.period = {6, "sliding_window_pattern"};
  f.options.rope.theta = 1e6;
  f.options.window_rope_theta = 10000;
  f.rope_by_layer_type = true;
  // The class of transformers reads neither.
  f.harmless.insert(f.harmless.end(), {"attn_logit_softcapping", "_sliding_window_pattern"});
  return f;
}

}  // namespace gangway
