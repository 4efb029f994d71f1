#include <string_view>

#include "families/family.h"

namespace gangway {

Family phi3_family() {
  Family f = decoder_family("phi3", "Phi3ForCausalLM",
                            {.vocab = 32064, .dim = 3072, .ffn = 8192, .max_positions = 4096, .eps = 1e-5});
  f.partial_rotary = true;
  std::erase_if(f.fixed,
                [](const FixedKey& key) { return std::string_view(key.name) == "partial_rotary_factor"; });
  for (const char* dropout : {"embd_pdrop", "resid_pdrop"})
    f.fixed.push_back(
        {dropout, {0.0}, "this library has no dropout in this family; write 0 there to train without it"});
  // Keys of Phi-4-mini. Its class of transformers reads none of them.
  f.fixed.push_back({"lm_head_bias", {false}, "this library has no bias in the head"});
  f.fixed.push_back({"full_attn_mod", {1.0}, "this library has the same attention in all layers"});
  f.fixed.push_back({"interpolate_factor", {1.0}, "this library scales positions by rope_scaling alone"});
  f.harmless = {"attention_bias", "mlp_bias"};  // the class of transformers reads none of them
  f.window = WindowKeys::size;
  f.renamed = {
      {"model.layers.*.self_attn.q_proj.weight", "model.layers.*.self_attn.qkv_proj.weight"},
      {"model.layers.*.self_attn.k_proj.weight", "model.layers.*.self_attn.qkv_proj.weight"},
      {"model.layers.*.self_attn.v_proj.weight", "model.layers.*.self_attn.qkv_proj.weight"},
      {"model.layers.*.mlp.gate_proj.weight", "model.layers.*.mlp.gate_up_proj.weight"},
      {"model.layers.*.mlp.up_proj.weight", "model.layers.*.mlp.gate_up_proj.weight"},
  };
  f.token_ids = {.bos = 1, .eos = 32000, .pad = 32000};
  return f;
}

}  // namespace gangway
