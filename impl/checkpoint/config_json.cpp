#include "checkpoint/config_json.h"

#include <set>

#include "checkpoint/json_scalars.h"
#include "checkpoint/json_text.h"
#include "families/family.h"

namespace gangway {
namespace {

const char* torch_name(DType dtype) {
  if (dtype == DType::f64) return "float64";
  if (dtype == DType::bf16) return "bfloat16";
  return dtype == DType::f16 ? "float16" : "float32";
}

// Returns the value that the key has in a file without it.
double missing_value(const ConfigKey& key, const DecoderOptions& options) {
  if (const auto* other = std::get_if<ConfigKey::SameAs>(&key.missing)) return options.*(*other) ? 1 : 0;
  return std::get<double>(key.missing);
}

void add_keys(JsonObject& json, const Family& family, const DecoderOptions& options) {
  for (const ConfigKey& key : family.keys) {
    if (key.only_if_needed && missing_value(key, options) == get(options, key.member)) continue;
    json.add(key.name, std::visit([&](auto member) { return json_scalar(options.*member); }, key.member));
  }
  for (const FixedKey& key : family.fixed)
    if (key.written)
      json.add(key.name, std::visit([](const auto& value) { return json_scalar(value); }, key.values.at(0)));
}

// Writes the form of transformers 4, which transformers 5 reads as well.
void add_rope(JsonObject& json, const RopeOptions& options) {
  json.add("rope_theta", json_scalar(options.theta));
  if (options.factor <= 1) return;
  JsonObject rope(4);
  rope.add("rope_type", json_scalar("llama3"));
  rope.add("factor", json_scalar(options.factor));
  rope.add("low_freq_factor", json_scalar(options.low_frequency_factor));
  rope.add("high_freq_factor", json_scalar(options.high_frequency_factor));
  rope.add("original_max_position_embeddings", json_scalar(options.original_positions));
  json.add("rope_scaling", std::move(rope).close());
}

// No window is written as null, because the classes of transformers have a default window for a missing key.
// Which layers have it, the origin says; a model without an origin has it in all layers.
void add_window(JsonObject& json, const Family& family, int64_t window, bool has_origin) {
  if (family.window == WindowKeys::none) return;
  const bool has_switch = family.window == WindowKeys::size_and_switch;
  if (has_switch) json.add("use_sliding_window", json_scalar(window != 0));
  json.add("sliding_window", window == 0 ? "null" : json_scalar(window));
  if (has_switch && window != 0 && !has_origin) json.add("max_window_layers", "0");
}

// Adds the keys of `origin` that the family does not determine, and that its files may have: the origin may
// be of another family.
void add_kept(JsonObject& json, const Family& family, const std::string& origin) {
  std::set<std::string> own = {"architectures",   "model_type",  "rope_theta", "rope_scaling",
                               "rope_parameters", "torch_dtype", "dtype"};
  for (const ConfigKey& key : family.keys) own.insert(key.name);
  std::set<std::string> allowed;
  for (const FixedKey& key : family.fixed) (key.written ? own : allowed).insert(key.name);
  if (family.window != WindowKeys::none) own.insert("sliding_window");
  if (family.window == WindowKeys::size_and_switch) {
    own.insert("use_sliding_window");
    allowed.insert({"layer_types", "max_window_layers"});
  }
  for (const auto& [key, value] : json_members(origin, kConfigName))
    if (!own.contains(key) && (is_harmless(family, key) || allowed.contains(key)))
      json.add(key, std::string(value));
}

}  // namespace

std::string config_json(const DecoderOptions& options, DType dtype, const std::string& origin) {
  const Family& family = family_named(options.family);
  check_saves(options);
  JsonObject json(2);
  json.add("architectures", "[" + json_scalar(family.architecture) + "]");
  json.add("model_type", json_scalar(family.name));
  add_keys(json, family, options);
  add_rope(json, options.rope);
  add_window(json, family, options.window, !origin.empty());
  json.add("torch_dtype", json_scalar(torch_name(dtype)));
  if (!origin.empty()) add_kept(json, family, origin);
  return std::move(json).close() + "\n";
}

}  // namespace gangway
