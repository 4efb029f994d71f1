#include "families/family.h"

namespace gangway {
namespace {

// transformers has Conv1D here, whose weights are [in, out].
std::vector<RenamedParameter> names() {
  return {
      {"model.embed_tokens.weight", "transformer.wte.weight"},
      {"model.embed_positions.weight", "transformer.wpe.weight"},
      {"model.layers.*.input_layernorm.weight", "transformer.h.*.ln_1.weight"},
      {"model.layers.*.input_layernorm.bias", "transformer.h.*.ln_1.bias"},
      {"model.layers.*.self_attn.q_proj.weight", "transformer.h.*.attn.c_attn.weight", true},
      {"model.layers.*.self_attn.k_proj.weight", "transformer.h.*.attn.c_attn.weight", true},
      {"model.layers.*.self_attn.v_proj.weight", "transformer.h.*.attn.c_attn.weight", true},
      {"model.layers.*.self_attn.q_proj.bias", "transformer.h.*.attn.c_attn.bias"},
      {"model.layers.*.self_attn.k_proj.bias", "transformer.h.*.attn.c_attn.bias"},
      {"model.layers.*.self_attn.v_proj.bias", "transformer.h.*.attn.c_attn.bias"},
      {"model.layers.*.self_attn.o_proj.weight", "transformer.h.*.attn.c_proj.weight", true},
      {"model.layers.*.self_attn.o_proj.bias", "transformer.h.*.attn.c_proj.bias"},
      {"model.layers.*.post_attention_layernorm.weight", "transformer.h.*.ln_2.weight"},
      {"model.layers.*.post_attention_layernorm.bias", "transformer.h.*.ln_2.bias"},
      {"model.layers.*.mlp.up_proj.weight", "transformer.h.*.mlp.c_fc.weight", true},
      {"model.layers.*.mlp.up_proj.bias", "transformer.h.*.mlp.c_fc.bias"},
      {"model.layers.*.mlp.down_proj.weight", "transformer.h.*.mlp.c_proj.weight", true},
      {"model.layers.*.mlp.down_proj.bias", "transformer.h.*.mlp.c_proj.bias"},
      {"model.norm.weight", "transformer.ln_f.weight"},
      {"model.norm.bias", "transformer.ln_f.bias"},
  };
}

std::vector<ConfigKey> keys() {
  using O = DecoderOptions;
  using Null = ConfigKey::Null;
  return {
      {.name = "vocab_size", .member = &O::vocab, .missing = 50257.0},
      {.name = "n_embd", .member = &O::dim, .missing = 768.0},
      {.name = "n_layer", .member = &O::layers, .missing = 12.0, .most = 10'000},
      {.name = "n_head", .member = &O::heads, .missing = 12.0},
      {.name = "n_inner", .member = &O::ffn, .missing = 0.0, .null = Null::zero, .only_if_needed = true},
      {.name = "n_positions", .member = &O::max_positions, .missing = 1024.0},
      {.name = "layer_norm_epsilon", .member = &O::eps, .missing = 1e-5},
      {.name = "initializer_range",
       .member = &O::deviation,
       .missing = 0.02,
       .null = Null::missing,
       .bounds_only = true},
      {.name = "tie_word_embeddings", .member = &O::tied, .missing = 1.0, .null = Null::missing},
      {.name = "embd_pdrop", .member = &O::embedding_dropout, .missing = 0.1, .bounds_only = true},
      {.name = "resid_pdrop", .member = &O::residual_dropout, .missing = 0.1, .bounds_only = true},
      {.name = "attn_pdrop", .member = &O::attention_dropout, .missing = 0.1, .bounds_only = true},
  };
}

std::vector<FixedKey> fixed_keys() {
  return {
      {"activation_function",
       {"gelu_new", "gelu_pytorch_tanh"},
       "this library has gelu_new and gelu_pytorch_tanh in this family",
       true,
       true},
      {"scale_attn_weights", {true}, "this library divides scores by the root of the width of a head"},
      {"scale_attn_by_inverse_layer_idx", {false}, "this library scales the scores of all layers alike"},
      {"add_cross_attention", {false}, "this library has no cross attention"},
      {"quantization_config", {}, "this library reads f64, f32, bf16 and f16 weights"},
  };
}

}  // namespace

Family gpt2_family() {
  Family f = decoder_family("gpt2", "GPT2LMHeadModel", {.tied = true});
  f.options.layer_norm = true;
  f.options.gated_mlp = false;
  f.options.activation = Activation::gelu_tanh;
  f.options.qkv_bias = f.options.out_bias = f.options.mlp_bias = true;
  f.options.max_positions = 1024;
  f.keys = keys();
  f.fixed = fixed_keys();
  set_learned_positions(f);
  // reorder_and_upcast_attn computes the same in another order; n_ctx is an old name of n_positions, which
  // the class of transformers does not read; summary_* belong to a head that this model does not have.
  f.harmless = {"reorder_and_upcast_attn", "n_ctx",        "summary_activation", "summary_first_dropout",
                "summary_proj_to_labels",  "summary_type", "summary_use_proj"};
  f.renamed = names();
  f.base_prefix = "transformer.";
  f.derived = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"};  // the causal mask
  f.token_ids = {.bos = 50256, .eos = 50256};
  return f;
}

}  // namespace gangway
