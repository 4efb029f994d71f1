#include "families/family.h"

namespace gangway {
namespace {

constexpr char kActivation[] = "this library has gelu_pytorch_tanh in this family";

}  // namespace

Family gemma_family() {
  Family f = decoder_family("gemma", "GemmaForCausalLM",
                            {.vocab = 256000,
                             .dim = 3072,
                             .layers = 28,
                             .heads = 16,
                             .ffn = 24576,
                             .kv_heads = 16,
                             .head_dim = 256,
                             .null_head_dim = ConfigKey::Null::refused,
                             .max_positions = 8192,
                             .tied = true});
  make_gemma(f);
  // Early files have "gelu", which the class of transformers takes for the tanh form as well.
  set_activation(f, Activation::gelu_tanh,
                 {"hidden_act", {"gelu_pytorch_tanh", "gelu"}, kActivation, true, true});
  f.fixed.push_back({"hidden_activation", {"gelu_pytorch_tanh"}, kActivation});
  return f;
}

}  // namespace gangway
