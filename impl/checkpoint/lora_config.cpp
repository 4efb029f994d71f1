#include "checkpoint/lora_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/json.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/config_json.h"
#include "checkpoint/input_file.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

// Keys that are read, and keys that describe the adapter or its training, but not what it computes.
constexpr std::string_view kKnown[] = {"auto_mapping",
                                       "base_model_name_or_path",
                                       "bias",
                                       "ensure_weight_tying",
                                       "fan_in_fan_out",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "megatron_core",
                                       "peft_type",
                                       "peft_version",
                                       "qalora_group_size",
                                       "r",
                                       "revision",
                                       "runtime_config",
                                       "target_modules",
                                       "task_type",
                                       "use_rslora"};

// Returns whether a value switches nothing on. PEFT writes such values for methods that are not in use.
bool is_empty(const JsonScalars& all, const std::string& key, const JsonValue& value) {
  switch (value.kind) {
    case Kind::null: return true;
    case Kind::boolean: return !value.boolean;
    case Kind::list: return value.count == 0;
    case Kind::object:
      return std::none_of(all.begin(), all.end(), [&](const auto& entry) {
        return entry.first.first == key && !entry.first.second.empty();
      });
    case Kind::integer:
    case Kind::real:
    case Kind::text: return false;
  }
  return false;
}

// PEFT adapts the modules whose name is the target or ends with a dot and the target.
std::vector<std::string> patterns_of(const Fields& fields) {
  const JsonValue& targets = fields.required("target_modules");
  if (targets.kind == Kind::text && targets.text == "all-linear") return {};
  if (targets.kind != Kind::list || targets.count == 0 || targets.texts.size() != targets.count)
    fields.unsupported("target_modules", targets, "this library has a list of names, or \"all-linear\"");
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
  const JsonScalars all = read_json_scalars(json, name);
  const Fields fields(all, name);
  const JsonValue& type = fields.required("peft_type");
  if (type.kind != Kind::text || type.text != "LORA")
    fields.unsupported("peft_type", type, "this library has \"LORA\"");
  LoraOptions options;
  options.rank = fields.size("r", 1);
  options.alpha = fields.number_or("lora_alpha", 8);
  if (!(options.alpha > 0)) fields.corrupt("lora_alpha", fields.required("lora_alpha"), "not above 0");
  options.dropout = fields.number_or("lora_dropout", 0);
  if (!(options.dropout >= 0 && options.dropout < 1))
    fields.corrupt("lora_dropout", fields.required("lora_dropout"), "outside [0, 1)");
  options.rank_stabilized = fields.flag_or("use_rslora", false);
  options.patterns = patterns_of(fields);
  if (const JsonValue* bias = fields.find("bias");
      bias != nullptr && (bias->kind != Kind::text || bias->text != "none"))
    fields.unsupported("bias", *bias, "this library has \"none\"");
  if (const JsonValue* init = fields.find("init_lora_weights");
      init != nullptr && init->kind != Kind::boolean &&
      (init->kind != Kind::text || init->text != "gaussian"))
    fields.unsupported("init_lora_weights", *init,
                       "this library has true, false and \"gaussian\", which leave the base as it is");
  fields.refuse_unknown([&](const std::string& key, const JsonValue& value) {
    return std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown) ||
           is_empty(all, key, value);
  });
  return options;
}

LoraOptions lora_options_of_folder(const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfigName;
  return parse_adapter_config(InputFile(path).read_all(kConfigLimit), path);
}

std::string adapter_config(const LoraOptions& options, const AdapterFacts& facts) {
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
  json.add("target_modules", json_list(facts.targets));
  json.add("task_type", facts.is_language_model ? json_scalar("CAUSAL_LM") : "null");
  json.add("use_dora", flag(false));
  json.add("use_rslora", flag(options.rank_stabilized));
  return std::move(json).close();
}

}  // namespace gangway
