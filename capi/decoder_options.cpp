#include "decoder_options.h"

#include <charconv>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "families/family.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Activation::tanh) == GW_ACTIVATION_TANH);
static_assert(static_cast<int>(QkNorm::width) == GW_QK_NORM_WIDTH);
static_assert(static_cast<int>(BlockNorms::both) == GW_BLOCK_NORMS_BOTH);
static_assert(static_cast<int>(RopeScaling::longrope) == GW_ROPE_SCALING_LONGROPE);

namespace {

// Returns the text in memory that is never freed, so that an options struct can point at it. Equal texts are
// kept once.
const char* kept_text(const std::string& text) {
  static std::mutex mutex;
  static auto& kept = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return kept.insert(text).first->c_str();
}

// A list of numbers as text, and back. Every bit of a number counts.
std::string text_of(const std::vector<double>& numbers) {
  std::string all;
  for (const double number : numbers) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    all += (all.empty() ? "" : " ") + std::string(digits, end);
  }
  return all;
}
std::vector<double> numbers_of(const char* list, const char* field) {
  std::vector<double> all;
  const std::string_view given = list == nullptr ? "" : list;
  for (size_t at = given.find_first_not_of(' '); at < given.size();) {
    double number = 0;
    const auto [end, error] = std::from_chars(given.data() + at, given.data() + given.size(), number);
    const auto next = static_cast<size_t>(end - given.data());
    if (error != std::errc() || (next < given.size() && given[next] != ' '))
      fail(Code::invalid_argument, field, " is \"", given.substr(0, 80),
           "\", not numbers with spaces between them");
    all.push_back(finite(number, field));
    at = given.find_first_not_of(' ', next);
  }
  return all;
}

void set_rope(gw_decoder_options& o, const RopeOptions& rope) {
  o.rope_theta = rope.theta;
  o.rope_factor = rope.factor;
  o.rope_low_frequency_factor = rope.low_frequency_factor;
  o.rope_high_frequency_factor = rope.high_frequency_factor;
  o.rope_original_positions = rope.original_positions;
  o.rope_scaling = static_cast<gw_rope_scaling>(rope.scaling);
  o.rope_truncate = rope.truncate;
  o.rope_partial = rope.partial;
  o.rope_attention_factor = rope.attention_factor;
  o.rope_beta_fast = rope.beta_fast;
  o.rope_beta_slow = rope.beta_slow;
  o.rope_mscale = rope.mscale;
  o.rope_mscale_all_dim = rope.mscale_all_dim;
  o.rope_short_factors = kept_text(text_of(rope.short_factors));
  o.rope_long_factors = kept_text(text_of(rope.long_factors));
}

RopeOptions rope_of(const gw_decoder_options& o) {
  RopeOptions rope;
  rope.theta = finite(o.rope_theta, "options.rope_theta");
  rope.factor = finite(o.rope_factor, "options.rope_factor");
  rope.low_frequency_factor = finite(o.rope_low_frequency_factor, "options.rope_low_frequency_factor");
  rope.high_frequency_factor = finite(o.rope_high_frequency_factor, "options.rope_high_frequency_factor");
  rope.original_positions = o.rope_original_positions;
  rope.scaling = enum_of<RopeScaling>(o.rope_scaling, GW_ROPE_SCALING_LONGROPE, "options.rope_scaling");
  rope.truncate = o.rope_truncate != 0;
  rope.partial = finite(o.rope_partial, "options.rope_partial");
  rope.attention_factor = finite(o.rope_attention_factor, "options.rope_attention_factor");
  rope.beta_fast = finite(o.rope_beta_fast, "options.rope_beta_fast");
  rope.beta_slow = finite(o.rope_beta_slow, "options.rope_beta_slow");
  rope.mscale = finite(o.rope_mscale, "options.rope_mscale");
  rope.mscale_all_dim = finite(o.rope_mscale_all_dim, "options.rope_mscale_all_dim");
  rope.short_factors = numbers_of(o.rope_short_factors, "options.rope_short_factors");
  rope.long_factors = numbers_of(o.rope_long_factors, "options.rope_long_factors");
  return rope;
}

}  // namespace

double capi::deviation_of(double range) {
  if (!(finite(range, "options.initializer_range") >= 0))
    fail(Code::invalid_argument, "options.initializer_range is ", range, ", below 0");
  return range;
}

gw_decoder_options capi::raw_options_of(const DecoderOptions& c) {
  gw_decoder_options o{};
  o.family = family_named(c.family).name.c_str();
  o.vocab = c.vocab;
  o.dim = c.dim;
  o.layers = c.layers;
  o.heads = c.heads;
  o.kv_heads = c.kv_heads;
  o.head_dim = c.head_dim;
  o.ffn = c.ffn;
  o.max_positions = c.max_positions;
  o.window = c.window;
  o.window_layers = kept_text(c.window_layers);
  o.eps = c.eps;
  set_rope(o, c.rope);
  o.initializer_range = c.deviation;
  o.qkv_bias = c.qkv_bias;
  o.out_bias = c.out_bias;
  o.mlp_bias = c.mlp_bias;
  o.tied = c.tied;
  o.qk_norm = static_cast<gw_qk_norm>(c.qk_norm);
  o.norms = static_cast<gw_block_norms>(c.norms);
  o.activation = static_cast<gw_activation>(c.activation);
  o.sinks = c.sinks;
  o.norm_offset = c.norm_offset;
  o.embedding_scale = c.embedding_scale;
  o.score_scale = c.score_scale;
  o.score_cap = c.score_cap;
  o.logit_cap = c.logit_cap;
  o.window_rope_theta = c.window_rope_theta;
  o.layer_norm = c.layer_norm;
  o.gated_mlp = c.gated_mlp;
  o.learned_positions = c.learned_positions;
  o.embedding_dropout = c.embedding_dropout;
  o.residual_dropout = c.residual_dropout;
  o.attention_dropout = c.attention_dropout;
  return o;
}

DecoderOptions capi::decoder_options_of(const gw_decoder_options& o) {
  DecoderOptions c;
  if (o.family != nullptr) c.family = o.family;
  c.vocab = o.vocab;
  c.dim = o.dim;
  c.layers = o.layers;
  c.heads = o.heads;
  c.kv_heads = o.kv_heads;
  c.head_dim = o.head_dim;
  c.ffn = o.ffn;
  c.max_positions = o.max_positions;
  c.window = o.window;
  if (o.window_layers != nullptr) c.window_layers = o.window_layers;
  c.eps = finite(o.eps, "options.eps");
  c.rope = rope_of(o);
  c.deviation = deviation_of(o.initializer_range);
  c.qkv_bias = o.qkv_bias != 0;
  c.out_bias = o.out_bias != 0;
  c.mlp_bias = o.mlp_bias != 0;
  c.tied = o.tied != 0;
  c.qk_norm = enum_of<QkNorm>(o.qk_norm, GW_QK_NORM_WIDTH, "options.qk_norm");
  c.norms = enum_of<BlockNorms>(o.norms, GW_BLOCK_NORMS_BOTH, "options.norms");
  c.activation = enum_of<Activation>(o.activation, GW_ACTIVATION_TANH, "options.activation");
  c.sinks = o.sinks != 0;
  c.norm_offset = finite(o.norm_offset, "options.norm_offset");
  c.embedding_scale = finite(o.embedding_scale, "options.embedding_scale");
  c.score_scale = finite(o.score_scale, "options.score_scale");
  c.score_cap = finite(o.score_cap, "options.score_cap");
  c.logit_cap = finite(o.logit_cap, "options.logit_cap");
  c.window_rope_theta = finite(o.window_rope_theta, "options.window_rope_theta");
  c.layer_norm = o.layer_norm != 0;
  c.gated_mlp = o.gated_mlp != 0;
  c.learned_positions = o.learned_positions != 0;
  c.embedding_dropout = finite(o.embedding_dropout, "options.embedding_dropout");
  c.residual_dropout = finite(o.residual_dropout, "options.residual_dropout");
  c.attention_dropout = finite(o.attention_dropout, "options.attention_dropout");
  return c;
}
