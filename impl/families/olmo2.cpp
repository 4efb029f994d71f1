#include "families/family.h"

namespace gangway {

Family olmo2_family() {
  Family f = decoder_family("olmo2", "Olmo2ForCausalLM", {.vocab = 50304, .eps = 1e-5});
  f.options.norms = BlockNorms::after;
  set_qk_norm(f, QkNorm::width);
  add_attention_bias(f);
  f.token_ids = {.eos = 50279, .pad = 1};
  return f;
}

}  // namespace gangway
