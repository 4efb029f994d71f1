// Reads config.json by the table of its family.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/config_json.h"
#include "checkpoint/config_rope.h"
#include "checkpoint/config_window.h"
#include "checkpoint/input_file.h"
#include "families/family.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

const Family& family_of(const Fields& fields, const std::string& file) {
  const std::string known = "this library has " + family_names();
  const JsonValue* type = fields.find("model_type");
  if (type == nullptr) fail(Code::not_supported, file, ": model_type is missing; ", known);
  const Family* family = type->kind == Kind::text ? find_family(type->text) : nullptr;
  if (family == nullptr) fields.unsupported("model_type", *type, known);
  return *family;
}

double of_number(const Fields& fields, const ConfigKey& key) {
  const double number = fields.number(key.name);
  if (!key.inverse_root) return number;
  if (!(number > 0)) fields.corrupt(key.name, *fields.find(key.name), "not above 0");
  return 1 / std::sqrt(number);
}

double value_of(const Fields& fields, const ConfigKey& key) {
  if (std::holds_alternative<int64_t DecoderOptions::*>(key.member))
    return static_cast<double>(fields.size(key.name, key.least, key.most));
  if (std::holds_alternative<double DecoderOptions::*>(key.member)) return of_number(fields, key);
  return fields.flag_or(key.name, false) ? 1 : 0;
}

void read_key(const Fields& fields, const ConfigKey& key, DecoderOptions& options) {
  if (fields.find(key.name) != nullptr) return set(options, key.member, value_of(fields, key));
  if (key.null == ConfigKey::Null::refused) fields.refuse_null(key.name);
  if (key.null == ConfigKey::Null::zero && fields.is_null(key.name)) return set(options, key.member, 0);
  const auto* same = std::get_if<ConfigKey::SameAs>(&key.missing);
  const double missing = same == nullptr ? std::get<double>(key.missing) : options.*(*same) ? 1 : 0;
  set(options, key.member, key.inverse_root ? 1 / std::sqrt(missing) : missing);
}

bool equals(const JsonValue& value, const FixedKey::Value& wanted) {
  if (const auto* flag = std::get_if<bool>(&wanted))
    return value.kind == Kind::boolean && value.boolean == *flag;
  if (const auto* number = std::get_if<double>(&wanted)) return value.is_number() && value.real == *number;
  return value.kind == Kind::text && value.text == std::get<const char*>(wanted);
}

void check_fixed(const Fields& fields, const FixedKey& key) {
  if (key.null_refused) fields.refuse_null(key.name);
  const JsonValue* value = fields.find(key.name);
  if (value != nullptr && std::none_of(key.values.begin(), key.values.end(),
                                       [&](const FixedKey::Value& v) { return equals(*value, v); }))
    fields.unsupported(key.name, *value, key.known);
}

void refuse_unknown(const Fields& fields, const Family& family) {
  std::set<std::string> known = window_keys(family);
  known.merge(rope_keys(family));
  known.insert("model_type");
  for (const ConfigKey& key : family.keys) known.insert(key.name);
  for (const FixedKey& key : family.fixed) known.insert(key.name);
  fields.refuse_unknown([&](const std::string& key, const JsonValue&) {
    return known.contains(key) || is_harmless(family, key);
  });
}

[[noreturn]] void fail_differs(const std::string& file, const char* field, const std::string& stated,
                               const std::string& own) {
  fail(Code::invalid_argument, "load: ", file, " says ", field, " = ", stated, ", but the model has ", own,
       "; make the model with the folder's options, or load with ignore_config");
}

template <typename T>
void compare(const std::string& file, const char* field, const T& stated, const T& own) {
  if (stated != own) fail_differs(file, field, json_scalar(stated), json_scalar(own));
}

void compare_rope(const std::string& file, const RopeOptions& stated, const RopeOptions& own) {
  const RopeFacts there = rope_facts(stated), here = rope_facts(own);
  for (size_t i = 0; i < std::min(there.size(), here.size()); ++i)
    if (there[i].second != here[i].second)
      fail_differs(file, there[i].first, there[i].second, here[i].second);
}

// Compares the factors of scores. A file states 1 / factor^2 (ConfigKey::inverse_root), from which the factor
// comes back but for rounding.
void compare_scores(const std::string& file, const DecoderOptions& stated, const DecoderOptions& own) {
  const auto scale = [](const DecoderOptions& o) {
    return o.score_scale != 0 ? o.score_scale : 1 / std::sqrt(static_cast<double>(o.head_dim));
  };
  const double there = scale(stated), here = scale(own);
  if (std::abs(there - here) > 1e-12 * here)
    fail_differs(file, "the factor of scores", json_scalar(there), json_scalar(here));
}

// Returns the window, or 0 if every sequence is shorter or no layer has it.
int64_t window_in_effect(const DecoderOptions& options) {
  const bool used = layers_with_window(options).find('w') != std::string::npos;
  return used && options.window < options.max_positions ? options.window : 0;
}

}  // namespace

DecoderOptions parse_config_json(std::string_view json, const std::string& file) {
  const JsonScalars all = read_json_scalars(json, file);
  const Fields fields(all, file);
  const Family& family = family_of(fields, file);
  DecoderOptions options = family.options;
  for (const ConfigKey& key : family.keys) read_key(fields, key, options);
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  if (options.head_dim == 0) options.head_dim = options.dim / options.heads;
  if (options.head_dim == 0)
    fail(Code::corrupt, file, ": ", key_of(family, &DecoderOptions::dim)->name, " is ", options.dim,
         ", below ", key_of(family, &DecoderOptions::heads)->name, " ", options.heads);
  if (options.ffn == 0) options.ffn = completed(options).ffn;
  read_rope(all, file, family, options);
  for (const FixedKey& key : family.fixed) check_fixed(fields, key);
  read_window(fields, family, options);
  refuse_unknown(fields, family);
  return options;
}

DecoderOptions decoder_options_of_folder(const std::string& folder) {
  const InputFile file(folder + "/" + kConfigName);
  return parse_config_json(file.read_all(kConfigLimit), file.path());
}

void check_same_function(const DecoderOptions& stated, const DecoderOptions& options,
                         const std::string& file) {
  const Family& family = family_named(stated.family);
  for (const NamedOption& option : named_options()) {
    const ConfigKey* const key = key_of(family, option.member);
    if ((key != nullptr && key->bounds_only) || option.member == OptionMember(&DecoderOptions::score_scale))
      continue;
    const char* name = key == nullptr ? option.name : key->name;
    std::visit([&](auto member) { compare(file, name, stated.*member, options.*member); }, option.member);
  }
  compare(file, "sliding_window", window_in_effect(stated), window_in_effect(options));
  if (window_in_effect(options) != 0 || options.window_rope_theta != 0)
    compare(file, "the layers with a window", layers_with_window(stated), layers_with_window(options));
  compare_scores(file, stated, options);
  compare_rope(file, stated.rope, options.rope);
}

}  // namespace gangway
