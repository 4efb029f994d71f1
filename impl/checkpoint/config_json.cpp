#include "checkpoint/config_json.h"

#include <cmath>
#include <set>

#include "base/json.h"
#include "base/json_scalars.h"
#include "checkpoint/config_rope.h"
#include "checkpoint/config_window.h"
#include "families/family.h"

namespace gangway {
namespace {

const char* torch_name(DType dtype) {
  if (dtype == DType::f64) return "float64";
  if (dtype == DType::bf16) return "bfloat16";
  return dtype == DType::f16 ? "float16" : "float32";
}

// Returns whether a file without the key means the model's value.
bool is_missing_value(const ConfigKey& key, const DecoderOptions& options) {
  const double value = get(options, key.member);
  if (const auto* other = std::get_if<ConfigKey::SameAs>(&key.missing))
    return value == (options.*(*other) ? 1 : 0);
  DecoderOptions without_ffn = options;
  without_ffn.ffn = 0;
  const bool derived =
      key.member == OptionMember(&DecoderOptions::head_dim)
          ? options.head_dim * options.heads == options.dim
          : key.member == OptionMember(&DecoderOptions::ffn) && completed(without_ffn).ffn == options.ffn;
  return value == std::get<double>(key.missing) || (derived && std::get<double>(key.missing) == 0);
}

// Returns n, where the option is 1 / sqrt(n): as a whole number if it is one but for rounding.
std::string inverse_root_text(double option, int64_t head_dim) {
  const double n = option == 0 ? static_cast<double>(head_dim) : 1 / (option * option);
  const double whole = std::round(n);
  return std::abs(n - whole) < 1e-12 * whole && whole < 1e15 ? json_scalar(static_cast<int64_t>(whole))
                                                             : json_scalar(n);
}

std::string value_text(const ConfigKey& key, const DecoderOptions& options) {
  const double number = get(options, key.member);
  if (key.zero_is_null && number == 0) return "null";
  if (key.inverse_root) return inverse_root_text(number, options.head_dim);
  return std::visit([&](auto member) { return json_scalar(options.*member); }, key.member);
}

void add_keys(JsonObject& json, const Family& family, const DecoderOptions& options,
              const JsonMembers& origin) {
  for (const ConfigKey& key : family.keys) {
    const bool omitted = key.only_if_needed ||
                         (key.as_in_origin && !origin.empty() && find_member(origin, key.name) == nullptr);
    if (omitted && is_missing_value(key, options)) continue;
    json.add(key.name, value_text(key, options));
  }
  for (const FixedKey& key : family.fixed)
    if (key.written)
      json.add(key.name, std::visit([](const auto& value) { return json_scalar(value); }, key.values.at(0)));
}

// Adds the keys of `origin` that the family does not determine, and that its files may have: the origin may
// be of another family.
void add_kept(JsonObject& json, const Family& family, const JsonMembers& origin) {
  std::set<std::string> own = {"architectures", "model_type", "torch_dtype", "dtype"};
  own.merge(window_keys(family));
  own.merge(rope_keys(family));
  for (const ConfigKey& key : family.keys) own.insert(key.name);
  std::set<std::string> allowed;
  for (const FixedKey& key : family.fixed) (key.written ? own : allowed).insert(key.name);
  for (const auto& [key, value] : origin)
    if (!own.contains(key) && (is_harmless(family, key) || allowed.contains(key)))
      json.add(key, std::string(value));
}

// A key that is left out means the value of the class of transformers, which cannot make a model with a
// pad_token_id outside of the vocabulary.
void add_token_ids(JsonObject& json, const Family& family, const DecoderOptions& options,
                   const JsonMembers& origin) {
  for (const auto& [key, id] :
       {std::pair("bos_token_id", family.token_ids.bos), std::pair("eos_token_id", family.token_ids.eos),
        std::pair("pad_token_id", family.token_ids.pad)})
    if (id >= options.vocab && find_member(origin, key) == nullptr) json.add(key, "null");
}

}  // namespace

std::string config_json(const DecoderOptions& options, DType dtype, const std::string& origin) {
  const Family& family = family_named(options.family);
  check_saves(options);
  JsonObject json(2);
  json.add("architectures", "[" + json_scalar(family.architecture) + "]");
  json.add("model_type", json_scalar(family.name));
  if (!origin.empty()) read_json_scalars(origin, kConfigName);  // else the new file could not be read either
  const JsonMembers members = origin.empty() ? JsonMembers() : json_members(origin, kConfigName);
  add_keys(json, family, options, members);
  write_rope(json, family, options, origin);
  write_window(json, family, options, members);
  const bool is_new_form =
      find_member(members, "dtype") != nullptr && find_member(members, "torch_dtype") == nullptr;
  json.add(is_new_form ? "dtype" : "torch_dtype", json_scalar(torch_name(dtype)));
  add_token_ids(json, family, options, members);
  add_kept(json, family, members);
  return std::move(json).close() + "\n";
}

}  // namespace gangway
