#include "checkpoint/lora_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/input_file.h"
#include "checkpoint/json_scalars.h"
#include "checkpoint/json_text.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

// Keys that describe the adapter or its training, but not what it computes.
const std::set<std::string> kHarmless = {"auto_mapping",
                                         "base_model_name_or_path",
                                         "ensure_weight_tying",
                                         "fan_in_fan_out",
                                         "inference_mode",
                                         "megatron_core",
                                         "peft_version",
                                         "qalora_group_size",
                                         "revision",
                                         "runtime_config",
                                         "task_type"};

class Keys {
 public:
  Keys(std::string_view json, std::string file)
      : all_(read_json_scalars(json, file)), file_(std::move(file)) {}

  // Returns null if the key is missing or its value is null. A key that was looked for counts as known.
  const JsonValue* find(const std::string& key) {
    known_.insert(key);
    const auto at = all_.find({key, ""});
    return at == all_.end() || at->second.kind == Kind::null ? nullptr : &at->second;
  }
  const JsonValue& required(const std::string& key) {
    const JsonValue* value = find(key);
    if (value == nullptr) fail(Code::corrupt, file_, ": ", key, " is missing");
    return *value;
  }
  double number(const std::string& key) {
    const JsonValue& value = required(key);
    if (value.kind != Kind::integer && value.kind != Kind::real) corrupt(key, value, "not a number");
    return value.real;
  }
  double number_or(const std::string& key, double missing) {
    return find(key) == nullptr ? missing : number(key);
  }
  bool flag(const std::string& key) {
    const JsonValue* value = find(key);
    if (value != nullptr && value->kind != Kind::boolean) corrupt(key, *value, "not true or false");
    return value != nullptr && value->boolean;
  }
  // Refuses all keys that nobody looked for and whose value says something.
  void check_rest() const {
    for (const auto& [key, value] : all_) {
      if (!key.second.empty() || known_.contains(key.first) || kHarmless.contains(key.first)) continue;
      if (!is_empty(key.first, value)) unsupported(key.first, value, "this library does not know the key");
    }
  }
  [[noreturn]] void corrupt(const std::string& key, const JsonValue& value, const char* why) const {
    fail(Code::corrupt, file_, ": ", key, " is ", value.display(), ", ", why);
  }
  [[noreturn]] void unsupported(const std::string& key, const JsonValue& value, const char* known) const {
    fail(Code::not_supported, file_, ": ", key, " is ", value.display(), "; ", known);
  }

 private:
  bool is_empty(const std::string& key, const JsonValue& value) const {
    switch (value.kind) {
      case Kind::null: return true;
      case Kind::boolean: return !value.boolean;
      case Kind::list: return value.count == 0;
      case Kind::object:
        return std::none_of(all_.begin(), all_.end(), [&](const auto& entry) {
          return entry.first.first == key && !entry.first.second.empty();
        });
      default: return false;
    }
  }

  const JsonScalars all_;
  const std::string file_;
  std::set<std::string> known_;
};

// PEFT adapts the modules whose name is the target or ends with a dot and the target.
std::vector<std::string> patterns_of(Keys& keys) {
  const JsonValue& targets = keys.required("target_modules");
  if (targets.kind == Kind::text && targets.text == "all-linear") return {};
  if (targets.kind != Kind::list || targets.count == 0 || targets.texts.size() != targets.count)
    keys.unsupported("target_modules", targets, "known is a list of names, or \"all-linear\"");
  std::vector<std::string> patterns;
  for (const std::string& target : targets.texts) patterns.push_back("**." + target);
  return patterns;
}

std::string number_text(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;  // PEFT's lora_alpha is an int
  return whole ? json_scalar(static_cast<int64_t>(value)) : json_scalar(value);
}

}  // namespace

LoraOptions parse_adapter_config(std::string_view json, const std::string& name) {
  Keys keys(json, name);
  const JsonValue& type = keys.required("peft_type");
  if (type.kind != Kind::text || type.text != "LORA")
    keys.unsupported("peft_type", type, "known is \"LORA\"");
  LoraOptions options;
  const JsonValue& rank = keys.required("r");
  if (rank.kind != Kind::integer || rank.integer < 1 || rank.integer > INT32_MAX)
    keys.corrupt("r", rank, "not a whole number over 0");
  options.rank = rank.integer;
  options.alpha = keys.number_or("lora_alpha", 8);
  if (!(std::isfinite(options.alpha) && options.alpha > 0))
    keys.corrupt("lora_alpha", keys.required("lora_alpha"), "not a number over 0");
  options.dropout = keys.number_or("lora_dropout", 0);
  options.rank_stabilized = keys.flag("use_rslora");
  options.patterns = patterns_of(keys);
  if (const JsonValue* bias = keys.find("bias");
      bias != nullptr && (bias->kind != Kind::text || bias->text != "none"))
    keys.unsupported("bias", *bias, "known is \"none\"");
  if (const JsonValue* init = keys.find("init_lora_weights");
      init != nullptr && init->kind != Kind::boolean &&
      (init->kind != Kind::text || init->text != "gaussian"))
    keys.unsupported("init_lora_weights", *init,
                     "known are true, false and \"gaussian\", which leave the base as it is");
  keys.check_rest();
  return options;
}

LoraOptions lora_options_of_folder(const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfigName;
  return parse_adapter_config(InputFile(path).read_all(kConfigLimit), path);
}

std::string adapter_config(const LoraOptions& options, const AdapterFacts& facts) {
  std::string targets;
  for (const std::string& target : facts.targets)
    targets += (targets.empty() ? "" : ", ") + json_scalar(target);
  const auto flag = [](bool value) { return json_scalar(value); };
  JsonObject json(2);
  json.add("alpha_pattern", "{}");
  json.add("base_model_name_or_path", facts.base.empty() ? "null" : json_scalar(facts.base));
  json.add("bias", json_scalar("none"));
  json.add("fan_in_fan_out", flag(false));
  json.add("inference_mode", flag(true));
  json.add("init_lora_weights", flag(true));
  json.add("lora_alpha", number_text(options.alpha));
  json.add("lora_dropout", json_scalar(options.dropout));
  json.add("modules_to_save", "null");
  json.add("peft_type", json_scalar("LORA"));
  json.add("r", json_scalar(options.rank));
  json.add("rank_pattern", "{}");
  json.add("target_modules", "[" + targets + "]");
  json.add("task_type", facts.is_language_model ? json_scalar("CAUSAL_LM") : "null");
  json.add("use_dora", flag(false));
  json.add("use_rslora", flag(options.rank_stabilized));
  return std::move(json).close();
}

}  // namespace gangway
