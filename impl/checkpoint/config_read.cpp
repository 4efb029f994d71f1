// config.json to a LlamaConfig. Numbers are bounded here, so that nothing that is made of them later takes memory on the
// word of a file.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "checkpoint/config_json.h"
#include "checkpoint/header_json.h"
#include "checkpoint/input_file.h"
#include "checkpoint/json_scalars.h"
#include "checkpoint/json_text.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max();

// What a family's class in transformers has by itself.
struct Family {
  const char* name;
  int64_t kv_heads;  // 0: num_attention_heads
  int64_t max_positions;
};
constexpr Family kFamilies[] = {
    {"llama", 0, 2048},
    {"qwen2", 32, 32768},
    {"mistral", 8, 131072},
};

// The fields of one object: the whole (""), rope_scaling or rope_parameters.
class Fields {
 public:
  Fields(const JsonScalars& all, std::string file, std::string object = "")
      : all_(all), file_(std::move(file)), object_(std::move(object)) {}

  // Null: it is missing, or is null.
  const JsonValue* find(const char* name) const {
    const auto found = all_.find(object_.empty() ? std::pair<std::string, std::string>(name, "")
                                                 : std::pair<std::string, std::string>(object_, name));
    return found == all_.end() || found->second.kind == Kind::null ? nullptr : &found->second;
  }
  int64_t size(const char* name, int64_t least, int64_t most = kMostSize) const {
    return whole(name, required(name), least, most);
  }
  int64_t size_or(const char* name, int64_t fallback) const {
    const JsonValue* value = find(name);
    return value == nullptr ? fallback : whole(name, *value, 1, kMostSize);
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
    fail(Code::corrupt, where(name), " is ", value.shown(), ", ", why);
  }
  [[noreturn]] void unsupported(const char* name, const JsonValue& value, const std::string& known) const {
    fail(Code::not_supported, where(name), " is ", value.shown(), "; ", known);
  }

 private:
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
  const std::string known = "this library has llama, qwen2 and mistral";
  const JsonValue* type = fields.find("model_type");
  if (type == nullptr) fail(Code::not_supported, file, ": model_type is missing; ", known);
  for (const Family& family : kFamilies)
    if (type->kind == Kind::text && type->text == family.name) return family;
  fields.unsupported("model_type", *type, known);
}

// Settings of these families that change values and have no form here.
void refuse_unsupported(const Fields& fields, int64_t max_positions) {
  const auto only = [&](const char* name, auto&& plain, const char* known) {
    const JsonValue* value = fields.find(name);
    if (value != nullptr && !plain(*value)) fields.unsupported(name, *value, known);
  };
  only(
      "hidden_act", [](const JsonValue& v) { return v.text == "silu" || v.text == "swish"; },
      "this library has silu");
  only(
      "attention_dropout", [](const JsonValue& v) { return v.real == 0 && v.kind != Kind::text; },
      "this library has no dropout");
  only(
      "partial_rotary_factor", [](const JsonValue& v) { return v.real == 1; },
      "this library rotates whole heads");
  only(
      "quantization_config", [](const JsonValue&) { return false; },
      "this library reads f64, f32, bf16 and f16 weights");
  const bool slides = fields.flag_or("use_sliding_window", true);
  only(
      "sliding_window",
      [&](const JsonValue& v) { return !slides || (v.kind == Kind::integer && v.integer >= max_positions); },
      "this library attends to all earlier positions");
}

// rope_theta and rope_scaling, or since transformers 5 rope_parameters with both.
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
  if (object != nullptr) {
    const Fields scaling(all, file, object);
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

}  // namespace

LlamaConfig parse_config_json(std::string_view json, const std::string& file) {
  const JsonScalars all = read_json_scalars(json, file);
  const Fields fields(all, file);
  const Family& family = family_of(fields, file);
  const bool qwen = std::string_view(family.name) == "qwen2";
  LlamaConfig c;
  c.vocab = fields.size("vocab_size", 1);
  c.dim = fields.size("hidden_size", 1);
  c.layers = fields.size("num_hidden_layers", 0, kMostLayers);
  c.heads = fields.size("num_attention_heads", 1);
  c.kv_heads = fields.size_or("num_key_value_heads", family.kv_heads != 0 ? family.kv_heads : c.heads);
  c.head_dim = fields.size_or("head_dim", c.dim / c.heads);
  c.ffn = fields.size("intermediate_size", 1);
  c.max_positions = fields.size_or("max_position_embeddings", family.max_positions);
  c.eps = fields.number_or("rms_norm_eps", 1e-6);
  c.deviation = fields.number_or("initializer_range", 0.02);
  c.rope = rope_of(all, fields, file);
  c.qkv_bias = qwen || fields.flag_or("attention_bias", false);
  c.out_bias = !qwen && fields.flag_or("attention_out_bias", c.qkv_bias);
  c.mlp_bias = fields.flag_or("mlp_bias", false);
  c.tied = fields.flag_or("tie_word_embeddings", false);
  refuse_unsupported(fields, c.max_positions);
  return c;
}

LlamaConfig llama_config_of_folder(const std::string& folder) {
  const InputFile file(folder + "/" + kConfigName);
  return parse_config_json(file.read_all(kConfigLimit), file.path());
}

void check_same_function(const LlamaConfig& stated, const LlamaConfig& config, const std::string& file) {
  compare(file, "vocab_size", stated.vocab, config.vocab);
  compare(file, "hidden_size", stated.dim, config.dim);
  compare(file, "num_hidden_layers", stated.layers, config.layers);
  compare(file, "num_attention_heads", stated.heads, config.heads);
  compare(file, "num_key_value_heads", stated.kv_heads, config.kv_heads);
  compare(file, "head_dim", stated.head_dim, config.head_dim);
  compare(file, "intermediate_size", stated.ffn, config.ffn);
  compare(file, "rms_norm_eps", stated.eps, config.eps);
  compare(file, "rope_theta", stated.rope.theta, config.rope.theta);
  compare(file, "the factor of rope_scaling", stated.rope.factor, std::max(config.rope.factor, 1.0));
  if (stated.rope.factor != 1) {
    compare(file, "low_freq_factor", stated.rope.low_frequency_factor, config.rope.low_frequency_factor);
    compare(file, "high_freq_factor", stated.rope.high_frequency_factor, config.rope.high_frequency_factor);
    compare(file, "original_max_position_embeddings", stated.rope.original_positions,
            config.rope.original_positions);
  }
  compare(file, "biases of q, k and v", stated.qkv_bias, config.qkv_bias);
  compare(file, "a bias of o_proj", stated.out_bias, config.out_bias);
  compare(file, "mlp_bias", stated.mlp_bias, config.mlp_bias);
  compare(file, "tie_word_embeddings", stated.tied, config.tied);
}

}  // namespace gangway
