#include "families/family.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace gangway {
namespace {

using Null = ConfigKey::Null;

constexpr char kDecoderPlan[] =
    R"(model.embed_tokens -> rowwise, output {between}
model.layers.*.input_layernorm -> sequence_parallel
model.layers.*.self_attn -> prepare_input({between}, Varying)
model.layers.*.self_attn.q_proj -> colwise, input Varying
model.layers.*.self_attn.k_proj -> colwise, input Varying
model.layers.*.self_attn.v_proj -> colwise, input Varying
model.layers.*.self_attn.o_proj -> rowwise, output {between}
model.layers.*.post_attention_layernorm -> sequence_parallel
model.layers.*.pre_feedforward_layernorm -> sequence_parallel
model.layers.*.post_feedforward_layernorm -> sequence_parallel
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
      {.name = "vocab_size", .member = &O::vocab, .missing = missing.vocab},
      {.name = "hidden_size", .member = &O::dim, .missing = missing.dim},
      {.name = "num_hidden_layers", .member = &O::layers, .missing = missing.layers, .most = 10'000},
      {.name = "num_attention_heads", .member = &O::heads, .missing = missing.heads},
      {.name = "num_key_value_heads",
       .member = &O::kv_heads,
       .missing = missing.kv_heads,
       .null = Null::zero},
      {.name = "head_dim",
       .member = &O::head_dim,
       .missing = missing.head_dim,
       .null = missing.null_head_dim,
       .as_in_origin = missing.head_dim == 0},
      {.name = "intermediate_size", .member = &O::ffn, .missing = missing.ffn},
      {.name = "max_position_embeddings",
       .member = &O::max_positions,
       .missing = missing.max_positions,
       .bounds_only = true},
      {.name = "rms_norm_eps", .member = &O::eps, .missing = missing.eps},
      {.name = "initializer_range",
       .member = &O::deviation,
       .missing = 0.02,
       .null = Null::missing,
       .bounds_only = true},
      {.name = "tie_word_embeddings",
       .member = &O::tied,
       .missing = missing.tied ? 1.0 : 0.0,
       .null = Null::missing},
  };
}

std::vector<FixedKey> shared_fixed_keys() {
  return {
      {"hidden_act", {"silu", "swish"}, "this library has silu", true, true},
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
  family.options.tied = missing.tied;
  family.architecture = architecture;
  family.keys = shared_keys(missing);
  family.fixed = shared_fixed_keys();
  family.plan = kDecoderPlan;
  return family;
}

void add_attention_bias(Family& family) {
  using O = DecoderOptions;
  family.keys.push_back(
      {.name = "attention_bias", .member = &O::qkv_bias, .missing = 0.0, .null = Null::missing});
  family.keys.push_back({.name = "attention_out_bias",
                         .member = &O::out_bias,
                         .missing = &O::qkv_bias,
                         .null = Null::missing,
                         .only_if_needed = true});
  family.requirements.push_back(
      {"out_bias", &O::out_bias, "qkv_bias", &O::qkv_bias,
       "transformers has one attention_bias for q, k, v and o and would drop o_proj.bias"});
}

void set_activation(Family& family, Activation activation, FixedKey key) {
  std::erase_if(family.fixed, [](const FixedKey& k) { return std::string_view(k.name) == "hidden_act"; });
  family.options.activation = activation;
  family.fixed.push_back(std::move(key));
}

void set_qk_norm(Family& family, QkNorm norm) {
  family.options.qk_norm = norm;
  const char* const style = norm == QkNorm::head ? "headwise" : "rowwise";
  for (const char* name : {"q_norm", "k_norm"})
    family.plan += text("model.layers.*.self_attn.", name, " -> ", style, "\n");
}

void set_learned_positions(Family& family) {
  family.options.learned_positions = true;
  family.options.rope.partial = 0;
  // Positions are added to whole sequences; after them, values are split along the sequence.
  replace_all(family.plan, "model.embed_tokens -> rowwise, output {between}",
              "model.embed_tokens -> rowwise, output Replicate\n"
              "model.embed_positions -> prepare_output(Replicate, {between})");
}

void make_gemma(Family& family) {
  family.options.norm_offset = 1;
  family.token_ids = {.bos = 2, .eos = 1, .pad = 0};
  family.options.embedding_scale = 0;  // sqrt(dim)
  family.options.eps = 1e-6;
  add_attention_bias(family);
  family.fixed.push_back({"use_bidirectional_attention", {false}, "this library has causal attention"});
}

void make_gemma_sandwich(Family& family) {
  using O = DecoderOptions;
  family.options.norms = BlockNorms::both;
  set_activation(family, Activation::gelu_tanh,
                 {"hidden_activation",
                  {"gelu_pytorch_tanh"},
                  "this library has gelu_pytorch_tanh in this family",
                  true,
                  true});
  family.options.score_scale = 1 / std::sqrt(256.0);
  family.keys.push_back(
      {.name = "query_pre_attn_scalar", .member = &O::score_scale, .missing = 256.0, .inverse_root = true});
  family.window = WindowKeys::size_and_period;
  family.options.window = kMissingWindow;
  family.harmless = {"hidden_act", "sliding_window_size"};  // the classes of transformers read neither
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
      {"norms", &O::norms},
      {"norm_offset", &O::norm_offset},
      {"activation", &O::activation},
      {"embedding_scale", &O::embedding_scale},
      {"score_scale", &O::score_scale},
      {"score_cap", &O::score_cap},
      {"sinks", &O::sinks},
      {"logit_cap", &O::logit_cap},
      {"window_rope_theta", &O::window_rope_theta},
      {"gated_mlp", &O::gated_mlp},
      {"layer_norm", &O::layer_norm},
      {"learned_positions", &O::learned_positions},
      {"embedding_dropout", &O::embedding_dropout},
      {"residual_dropout", &O::residual_dropout},
      {"attention_dropout", &O::attention_dropout},
  };
  return all;
}

const ConfigKey* key_of(const Family& family, const OptionMember& member) {
  const auto found = std::find_if(family.keys.begin(), family.keys.end(),
                                  [&](const ConfigKey& key) { return key.member == member; });
  return found == family.keys.end() ? nullptr : &*found;
}

std::string layers_with_window(const DecoderOptions& options) {
  std::string letters;
  for (int64_t i = 0; i < options.layers; ++i) letters += window_of_layer(options, i) == 0 ? 'f' : 'w';
  return letters;
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

namespace {

// Returns whether an option has the family's value, or the one that follows from other options in its place.
bool is_familys(const Family& family, const DecoderOptions& options, const OptionMember& member) {
  const double own = get(options, member), always = get(family.options, member);
  if (own == always) return true;
  if (always != 0) return false;  // 0 may mean "derived"
  DecoderOptions derived = options;
  set(derived, member, 0);
  return own == get(completed(derived), member);
}

void check_rope(const DecoderOptions& options) {
  const Family& family = family_named(options.family);
  const double always = family.options.rope.partial;
  if (!family.partial_rotary && options.rope.partial != always)
    fail(Code::invalid_argument, "rope_partial is ", options.rope.partial, ", but in the family ",
         family.name, " it is always ", always);
  if (family.rope_by_layer_type && options.window_rope_theta == 0)
    fail(Code::invalid_argument, "window_rope_theta is 0, but in the family ", family.name,
         " layers with a window always have a theta of their own");
  const bool is_longrope = options.rope.scaling == RopeScaling::longrope;
  if (family.partial_rotary && !is_longrope && options.rope.factor != 1)
    fail(Code::invalid_argument, "rope_factor is ", options.rope.factor, ", but the family ", family.name,
         " has no scaling besides longrope");
}

}  // namespace

void check_expressible(const DecoderOptions& options) {
  const Family& family = family_named(options.family);
  for (const NamedOption& option : named_options()) {
    if (key_of(family, option.member) != nullptr || is_familys(family, options, option.member)) continue;
    fail(Code::invalid_argument, option.name, " is ", get(options, option.member), ", but in the family ",
         family.name, " it is always ", get(family.options, option.member));
  }
  check_rope(options);
  if (options.window != 0 && family.window == WindowKeys::none)
    fail(Code::invalid_argument, "window is ", options.window, ", but the family ", family.name, " has none");
  if (family.window == WindowKeys::size && options.window_layers.find('f') != std::string::npos)
    fail(Code::invalid_argument, "window_layers is ", options.window_layers, ", but in the family ",
         family.name, " all layers have the window");
}

void check_saves(const DecoderOptions& options) {
  const Family& family = family_named(options.family);
  for (const Requirement& needs : family.requirements)
    if (options.*needs.member && !(options.*needs.needed))
      fail(Code::invalid_argument, "the family ", family.name, " cannot be saved with ", needs.option,
           " but no ", needs.needs, ": ", needs.why, "; make the model with both or with neither");
}

std::string family_plan(const DecoderOptions& decoder, const FamilyPlanOptions& options) {
  std::string all = family_named(decoder.family).plan, kept;
  if (decoder.sinks) all += "model.layers.*.self_attn.core_attention -> headwise\n";
  if (decoder.embedding_dropout != 0) all += "model.embed_dropout -> sequence_parallel\n";
  if (decoder.residual_dropout != 0)
    all +=
        "model.layers.*.self_attn_dropout -> sequence_parallel\n"
        "model.layers.*.mlp_dropout -> sequence_parallel\n";
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
