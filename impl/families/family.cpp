#include "families/family.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace gangway {
namespace {

using Required = ConfigKey::Required;

constexpr char kDecoderPlan[] =
    R"(model.embed_tokens -> rowwise, output {between}
model.layers.*.input_layernorm -> sequence_parallel
model.layers.*.self_attn -> prepare_input({between}, Varying)
model.layers.*.self_attn.q_proj -> colwise, input Varying
model.layers.*.self_attn.k_proj -> colwise, input Varying
model.layers.*.self_attn.v_proj -> colwise, input Varying
model.layers.*.self_attn.o_proj -> rowwise, output {between}
model.layers.*.post_attention_layernorm -> sequence_parallel
model.layers.*.mlp -> prepare_input({between}, Varying)
model.layers.*.mlp.gate_proj -> colwise, input Varying
model.layers.*.mlp.up_proj -> colwise, input Varying
model.layers.*.mlp.down_proj -> rowwise, output {between}
model.norm -> sequence_parallel
lm_head -> colwise, input {between}, output {logits}
)";

void replace_all(std::string& text, const std::string& what, const char* by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.replace(at, what.size(), by);
}

std::vector<ConfigKey> shared_keys(const MissingKeys& missing) {
  using O = DecoderOptions;
  return {
      {.name = "vocab_size", .member = &O::vocab, .missing = Required()},
      {.name = "hidden_size", .member = &O::dim, .missing = Required()},
      {.name = "num_hidden_layers", .member = &O::layers, .missing = Required(), .least = 0, .most = 10'000},
      {.name = "num_attention_heads", .member = &O::heads, .missing = Required()},
      {.name = "num_key_value_heads", .member = &O::kv_heads, .missing = missing.kv_heads},
      {.name = "head_dim", .member = &O::head_dim, .missing = missing.head_dim},
      {.name = "intermediate_size", .member = &O::ffn, .missing = Required()},
      {.name = "max_position_embeddings",
       .member = &O::max_positions,
       .missing = missing.max_positions,
       .bounds_only = true},
      {.name = "rms_norm_eps", .member = &O::eps, .missing = 1e-6},
      {.name = "initializer_range", .member = &O::deviation, .missing = 0.02, .bounds_only = true},
      {.name = "tie_word_embeddings", .member = &O::tied, .missing = 0.0},
  };
}

std::vector<FixedKey> shared_fixed_keys() {
  return {
      {"hidden_act", {"silu", "swish"}, "this library has silu", true},
      {"attention_dropout", {0.0}, "this library has no dropout", true},
      {"partial_rotary_factor", {1.0}, "this library rotates whole heads"},
      {"rope_interleaved", {false}, "this library rotates entry i with entry i + head_dim / 2"},
      {"quantization_config", {}, "this library reads f64, f32, bf16 and f16 weights"},
  };
}

}  // namespace

Family decoder_family(const char* name, const char* architecture, const MissingKeys& missing) {
  Family family;
  family.name = family.options.family = name;
  family.architecture = architecture;
  family.keys = shared_keys(missing);
  family.fixed = shared_fixed_keys();
  family.plan = kDecoderPlan;
  return family;
}

void add_attention_bias(Family& family) {
  family.keys.push_back({.name = "attention_bias", .member = &DecoderOptions::qkv_bias, .missing = 0.0});
  family.keys.push_back({.name = "attention_out_bias",
                         .member = &DecoderOptions::out_bias,
                         .missing = &DecoderOptions::qkv_bias,
                         .only_if_needed = true});
}

bool is_harmless(const Family& family, const std::string& key) {
  // Names, token ids, and settings of generation, training scripts and classification heads.
  static const std::set<std::string> all = {"_name_or_path",
                                            "add_cross_attention",
                                            "architectures",
                                            "attn_implementation",
                                            "_attn_implementation",
                                            "_attn_implementation_autoset",
                                            "bad_words_ids",
                                            "begin_suppress_tokens",
                                            "bos_token_id",
                                            "chunk_size_feed_forward",
                                            "cross_attention_hidden_size",
                                            "decoder_start_token_id",
                                            "diversity_penalty",
                                            "do_sample",
                                            "dtype",
                                            "early_stopping",
                                            "encoder_no_repeat_ngram_size",
                                            "eos_token_id",
                                            "exponential_decay_length_penalty",
                                            "finetuning_task",
                                            "forced_bos_token_id",
                                            "forced_eos_token_id",
                                            "id2label",
                                            "is_decoder",
                                            "is_encoder_decoder",
                                            "is_llama_config",
                                            "label2id",
                                            "length_penalty",
                                            "max_length",
                                            "min_length",
                                            "name_or_path",
                                            "no_repeat_ngram_size",
                                            "num_beam_groups",
                                            "num_beams",
                                            "num_return_sequences",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "output_scores",
                                            "pad_token_id",
                                            "prefix",
                                            "problem_type",
                                            "pruned_heads",
                                            "remove_invalid_values",
                                            "repetition_penalty",
                                            "return_dict",
                                            "return_dict_in_generate",
                                            "sep_token_id",
                                            "suppress_tokens",
                                            "task_specific_params",
                                            "temperature",
                                            "tf_legacy_loss",
                                            "tie_encoder_decoder",
                                            "tokenizer_class",
                                            "top_k",
                                            "top_p",
                                            "torch_dtype",
                                            "torchscript",
                                            "transformers_version",
                                            "typical_p",
                                            "unsloth_fixed",
                                            "unsloth_version",
                                            "use_bfloat16",
                                            "use_cache"};
  return all.contains(key) || std::any_of(family.harmless.begin(), family.harmless.end(),
                                          [&](const char* name) { return key == name; });
}

const std::vector<NamedOption>& named_options() {
  using O = DecoderOptions;
  static const std::vector<NamedOption> all = {
      {"vocab", &O::vocab},
      {"dim", &O::dim},
      {"layers", &O::layers},
      {"heads", &O::heads},
      {"kv_heads", &O::kv_heads},
      {"head_dim", &O::head_dim},
      {"ffn", &O::ffn},
      {"eps", &O::eps},
      {"max_positions", &O::max_positions},
      {"deviation", &O::deviation},
      {"qkv_bias", &O::qkv_bias},
      {"out_bias", &O::out_bias},
      {"mlp_bias", &O::mlp_bias},
      {"tied", &O::tied},
      {"causal", &O::causal},
      {"qk_norm", &O::qk_norm},
  };
  return all;
}

double get(const DecoderOptions& options, const OptionMember& member) {
  return std::visit([&](auto m) { return static_cast<double>(options.*m); }, member);
}

void set(DecoderOptions& options, const OptionMember& member, double value) {
  std::visit(
      [&](auto m) {
        using Type = std::remove_reference_t<decltype(options.*m)>;
        options.*m = static_cast<Type>(value);
      },
      member);
}

void check_expressible(const DecoderOptions& options) {
  const Family& family = family_named(options.family);
  for (const NamedOption& option : named_options()) {
    const bool has_key = std::any_of(family.keys.begin(), family.keys.end(),
                                     [&](const ConfigKey& key) { return key.member == option.member; });
    if (has_key || get(options, option.member) == get(family.options, option.member)) continue;
    fail(Code::invalid_argument, option.name, " is ", get(options, option.member), ", but in the family ",
         family.name, " it is always ", get(family.options, option.member));
  }
  if (options.window != 0 && family.window == WindowKeys::none)
    fail(Code::invalid_argument, "window is ", options.window, ", but the family ", family.name, " has none");
}

std::string family_plan(const DecoderOptions& decoder, const FamilyPlanOptions& options) {
  std::string all = family_named(decoder.family).plan, kept;
  replace_all(all, "{between}", options.sequence_parallel ? "Shard(1)" : "Replicate");
  replace_all(all, "{logits}", options.loss_parallel ? "Shard(-1)" : "Replicate");
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at) + 1;
    const std::string row = all.substr(at, end - at);
    if (options.sequence_parallel || !row.ends_with("-> sequence_parallel\n")) kept += row;
    at = end;
  }
  return kept;
}

}  // namespace gangway
