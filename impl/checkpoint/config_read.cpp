// Reads config.json by the table of its family. Numbers are bounded here, so that a wrong file cannot make
// later code allocate huge memory.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/header_json.h"
#include "checkpoint/input_file.h"
#include "checkpoint/json_scalars.h"
#include "checkpoint/json_text.h"
#include "families/family.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

// The keys of one object of the file: the outer one (""), rope_scaling or rope_parameters.
class Fields {
 public:
  Fields(const JsonScalars& all, std::string file, std::string object = "")
      : all_(all), file_(std::move(file)), object_(std::move(object)) {}

  // Returns null if the key is missing or its value is null.
  const JsonValue* find(const char* name) const {
    const JsonValue* value = at(name);
    return value == nullptr || value->kind == Kind::null ? nullptr : value;
  }
  bool is_null(const char* name) const {
    const JsonValue* value = at(name);
    return value != nullptr && value->kind == Kind::null;
  }
  void refuse_null(const char* name) const {
    if (is_null(name)) corrupt(name, *at(name), "with which the class of transformers cannot work");
  }
  int64_t size(const char* name, int64_t least, int64_t most = INT32_MAX) const {
    return whole(name, required(name), least, most);
  }
  double number(const char* name) const { return real(name, required(name)); }
  double number_or(const char* name, double fallback) const {
    const JsonValue* value = find(name);
    return value == nullptr ? fallback : real(name, *value);
  }
  bool flag_or(const char* name, bool fallback) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return fallback;
    if (value->kind != Kind::boolean) corrupt(name, *value, "not true or false");
    return value->boolean;
  }
  std::string text_or(const char* name, const char* fallback) const {
    const JsonValue* value = find(name);
    if (value == nullptr) return fallback;
    if (value->kind != Kind::text) corrupt(name, *value, "not a text");
    return value->text;
  }
  [[noreturn]] void corrupt(const char* name, const JsonValue& value, const std::string& why) const {
    fail(Code::corrupt, where(name), " is ", value.display(), ", ", why);
  }
  [[noreturn]] void unsupported(const char* name, const JsonValue& value, const std::string& known) const {
    fail(Code::not_supported, where(name), " is ", value.display(), "; ", known);
  }

 private:
  const JsonValue* at(const char* name) const {
    const auto found = all_.find(object_.empty() ? std::pair<std::string, std::string>(name, "")
                                                 : std::pair<std::string, std::string>(object_, name));
    return found == all_.end() ? nullptr : &found->second;
  }
  std::string where(const char* name) const {
    return file_ + ": " + (object_.empty() ? "" : object_ + ".") + name;
  }
  const JsonValue& required(const char* name) const {
    const JsonValue* value = find(name);
    if (value == nullptr) fail(Code::corrupt, where(name), " is missing");
    return *value;
  }
  int64_t whole(const char* name, const JsonValue& value, int64_t least, int64_t most) const {
    if (value.kind != Kind::integer) corrupt(name, value, "not a whole number");
    if (value.integer < least || value.integer > most)
      corrupt(name, value, text("outside of ", least, " to ", most));
    return value.integer;
  }
  double real(const char* name, const JsonValue& value) const {
    if ((value.kind != Kind::integer && value.kind != Kind::real) || !std::isfinite(value.real))
      corrupt(name, value, "not a finite number");
    return value.real;
  }

  const JsonScalars& all_;
  std::string file_, object_;
};

const Family& family_of(const Fields& fields, const std::string& file) {
  const std::string known = "this library has " + family_names();
  const JsonValue* type = fields.find("model_type");
  if (type == nullptr) fail(Code::not_supported, file, ": model_type is missing; ", known);
  const Family* family = type->kind == Kind::text ? find_family(type->text) : nullptr;
  if (family == nullptr) fields.unsupported("model_type", *type, known);
  return *family;
}

double value_of(const Fields& fields, const ConfigKey& key) {
  if (std::holds_alternative<int64_t DecoderOptions::*>(key.member))
    return static_cast<double>(fields.size(key.name, key.least, key.most));
  if (std::holds_alternative<double DecoderOptions::*>(key.member)) return fields.number(key.name);
  return fields.flag_or(key.name, false) ? 1 : 0;
}

void read_key(const Fields& fields, const ConfigKey& key, DecoderOptions& options) {
  if (fields.find(key.name) != nullptr) return set(options, key.member, value_of(fields, key));
  if (key.null == ConfigKey::Null::refused) fields.refuse_null(key.name);
  if (key.null == ConfigKey::Null::zero && fields.is_null(key.name)) return set(options, key.member, 0);
  const auto* same = std::get_if<ConfigKey::SameAs>(&key.missing);
  const double missing = same == nullptr ? std::get<double>(key.missing) : options.*(*same) ? 1 : 0;
  set(options, key.member, missing);
}

bool equals(const JsonValue& value, const FixedKey::Value& wanted) {
  if (const auto* flag = std::get_if<bool>(&wanted))
    return value.kind == Kind::boolean && value.boolean == *flag;
  if (const auto* number = std::get_if<double>(&wanted))
    return (value.kind == Kind::integer || value.kind == Kind::real) && value.real == *number;
  return value.kind == Kind::text && value.text == std::get<const char*>(wanted);
}

void check_fixed(const Fields& fields, const FixedKey& key) {
  if (key.null_refused) fields.refuse_null(key.name);
  const JsonValue* value = fields.find(key.name);
  if (value != nullptr && std::none_of(key.values.begin(), key.values.end(),
                                       [&](const FixedKey::Value& v) { return equals(*value, v); }))
    fields.unsupported(key.name, *value, key.known);
}

// Returns whether some layer has the window, in a family that says which ones. `window`: 0 if none is in use.
bool has_windowed_layer(const Fields& fields, int64_t layers, int64_t window) {
  const JsonValue* types = fields.find("layer_types");
  if (types == nullptr) {
    if (window == 0) return false;
    fields.refuse_null("max_window_layers");
    const int64_t first = fields.find("max_window_layers") == nullptr ? kMissingMaxWindowLayers
                                                                      : fields.size("max_window_layers", 0);
    return first < layers;
  }
  if (types->kind != Kind::list || types->texts.size() != types->count ||
      types->count != static_cast<size_t>(layers))
    fields.corrupt("layer_types", *types, text("not a text for each of ", layers, " layers"));
  const auto is = [](const char* type) { return [=](const std::string& t) { return t == type; }; };
  for (const std::string& type : types->texts)
    if (!is("full_attention")(type) && !is("sliding_attention")(type))
      fields.unsupported(
          "layer_types", *types,
          "one is " + printable(type) + ", but this library has full_attention and sliding_attention");
  const bool slides = std::any_of(types->texts.begin(), types->texts.end(), is("sliding_attention"));
  if (slides && window == 0)
    fields.corrupt("layer_types", *types,
                   "of which one is sliding_attention, but no sliding_window is in use");
  return slides;
}

// Returns the window that some layer has, or 0. A sequence that is longer is refused where it is used.
int64_t window_of(const Fields& fields, const Family& family, int64_t layers) {
  if (family.window == WindowKeys::none) return 0;
  const bool has_switch = family.window == WindowKeys::size_and_switch;
  int64_t window = 0;
  if (!has_switch || fields.flag_or("use_sliding_window", false)) {
    if (fields.find("sliding_window") != nullptr)
      window = fields.size("sliding_window", 1);
    else if (!fields.is_null("sliding_window"))
      window = kMissingWindow;
  }
  return !has_switch || has_windowed_layer(fields, layers, window) ? window : 0;
}

// An unknown key may change what the model computes, so it is refused.
void refuse_unknown(const JsonScalars& all, const Fields& fields, const Family& family) {
  std::set<std::string> known = {"model_type", "rope_theta", "rope_scaling", "rope_parameters"};
  if (family.window != WindowKeys::none) known.insert("sliding_window");
  if (family.window == WindowKeys::size_and_switch)
    known.insert({"use_sliding_window", "max_window_layers", "layer_types"});
  for (const ConfigKey& key : family.keys) known.insert(key.name);
  for (const FixedKey& key : family.fixed) known.insert(key.name);
  for (const auto& [name, value] : all)
    if (name.second.empty() && value.kind != Kind::null && !known.contains(name.first) &&
        !is_harmless(family, name.first))
      fields.unsupported(printable(name.first).c_str(), value,
                         "this library does not know the key, which may change what the model computes");
}

void refuse_unknown_rope(const JsonScalars& all, const Fields& scaling, const char* object) {
  static const std::set<std::string> known = {"rope_type",
                                              "type",
                                              "rope_theta",
                                              "factor",
                                              "low_freq_factor",
                                              "high_freq_factor",
                                              "original_max_position_embeddings",
                                              "partial_rotary_factor"};
  for (const auto& [name, value] : all)
    if (name.first == object && !name.second.empty() && value.kind != Kind::null &&
        !known.contains(name.second))
      scaling.unsupported(printable(name.second).c_str(), value,
                          "this library does not know the key, which may change what the model computes");
}

// Reads rope_theta and rope_scaling, or rope_parameters, which since transformers 5 holds both.
RopeOptions rope_of(const JsonScalars& all, const Fields& fields, const std::string& file) {
  RopeOptions rope;
  const char* object = nullptr;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const JsonValue* value = fields.find(name);
    if (value == nullptr) continue;
    if (value->kind != Kind::object) fields.corrupt(name, *value, "not an object");
    if (object != nullptr) fields.corrupt(name, *value, "beside rope_scaling; one of the two is wanted");
    object = name;
  }
  rope.theta = fields.number_or("rope_theta", rope.theta);
  const bool theta_inside = object != nullptr && Fields(all, file, object).find("rope_theta") != nullptr;
  if (!theta_inside) fields.refuse_null("rope_theta");
  if (object != nullptr) {
    const Fields scaling(all, file, object);
    scaling.refuse_null("rope_theta");
    check_fixed(scaling, {"partial_rotary_factor", {1.0}, "this library rotates whole heads"});
    refuse_unknown_rope(all, scaling, object);
    if (const JsonValue* theta = scaling.find("rope_theta")) {
      rope.theta = scaling.number("rope_theta");
      if (fields.find("rope_theta") != nullptr && fields.number("rope_theta") != rope.theta)
        scaling.corrupt("rope_theta", *theta, "not the rope_theta of the whole");
    }
    const char* key = scaling.find("rope_type") != nullptr ? "rope_type" : "type";
    const std::string type = scaling.text_or(key, "default");
    if (type == "llama3") {
      rope.factor = scaling.number("factor");
      rope.low_frequency_factor = scaling.number("low_freq_factor");
      rope.high_frequency_factor = scaling.number("high_freq_factor");
      rope.original_positions = scaling.size("original_max_position_embeddings", 1);
      if (rope.factor < 1) scaling.corrupt("factor", *scaling.find("factor"), "below 1");
    } else if (type != "default") {
      scaling.unsupported(key, *scaling.find(key), "this library has default and llama3");
    }
  }
  if (rope.theta <= 0) fail(Code::corrupt, file, ": rope_theta is ", rope.theta, ", not above 0");
  return rope;
}

template <typename T>
void compare(const std::string& file, const char* field, const T& stated, const T& own) {
  if (stated == own) return;
  fail(Code::invalid_argument, "load: ", file, " says ", field, " = ", json_scalar(stated),
       ", but the model has ", json_scalar(own),
       "; make the model with the folder's options, or load with ignore_config");
}

// Returns the window, or 0 if every sequence is shorter.
int64_t window_in_effect(const DecoderOptions& options) {
  return options.window < options.max_positions ? options.window : 0;
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
    fail(Code::corrupt, file, ": hidden_size is ", options.dim, ", below num_attention_heads ",
         options.heads);
  options.rope = rope_of(all, fields, file);
  for (const FixedKey& key : family.fixed) check_fixed(fields, key);
  options.window = window_of(fields, family, options.layers);
  refuse_unknown(all, fields, family);
  return options;
}

DecoderOptions decoder_options_of_folder(const std::string& folder) {
  const InputFile file(folder + "/" + kConfigName);
  return parse_config_json(file.read_all(kConfigLimit), file.path());
}

void check_same_function(const DecoderOptions& stated, const DecoderOptions& options,
                         const std::string& file) {
  const std::vector<ConfigKey>& keys = family_named(stated.family).keys;
  for (const NamedOption& option : named_options()) {
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.member == option.member; });
    if (key != keys.end() && key->bounds_only) continue;
    const char* name = key == keys.end() ? option.name : key->name;
    std::visit([&](auto member) { compare(file, name, stated.*member, options.*member); }, option.member);
  }
  compare(file, "sliding_window", window_in_effect(stated), window_in_effect(options));
  compare(file, "rope_theta", stated.rope.theta, options.rope.theta);
  compare(file, "the factor of rope_scaling", stated.rope.factor, options.rope.factor);
  if (stated.rope.factor == 1) return;
  compare(file, "low_freq_factor", stated.rope.low_frequency_factor, options.rope.low_frequency_factor);
  compare(file, "high_freq_factor", stated.rope.high_frequency_factor, options.rope.high_frequency_factor);
  compare(file, "original_max_position_embeddings", stated.rope.original_positions,
          options.rope.original_positions);
}

}  // namespace gangway
