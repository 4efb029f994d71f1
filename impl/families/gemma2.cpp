#include "families/family.h"

namespace gangway {

Family gemma2_family() {
  using O = DecoderOptions;
  Family f = decoder_family("gemma2", "Gemma2ForCausalLM",
                            {.vocab = 256000,
                             .dim = 2304,
                             .layers = 26,
                             .heads = 8,
                             .ffn = 9216,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .null_head_dim = ConfigKey::Null::refused,
                             .max_positions = 8192,
                             .tied = true});
  make_gemma(f);
  make_gemma_sandwich(f);
  f.options.score_cap = 50;
  f.options.logit_cap = 30;
  f.keys.push_back({.name = "attn_logit_softcapping",
                    .member = &O::score_cap,
                    .missing = 50.0,
                    .null = ConfigKey::Null::zero,
                    .zero_is_null = true});
  f.keys.push_back({.name = "final_logit_softcapping",
                    .member = &O::logit_cap,
                    .missing = 30.0,
                    .null = ConfigKey::Null::zero,
                    .zero_is_null = true});
  f.options.window_layers = "wf";
  f.period = {2};
  return f;
}

}  // namespace gangway
