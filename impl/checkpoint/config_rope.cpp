#include "checkpoint/config_rope.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json_scalars.h"
#include "checkpoint/config_json.h"
#include "checkpoint/config_window.h"
#include "nn/rope_table.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

constexpr char kOriginal[] = "original_max_position_embeddings", kPartial[] = "partial_rotary_factor";

bool has_rotary(const Family& family) { return family.options.rope.partial != 0; }

const char* name_of(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::llama3: return "llama3";
    case RopeScaling::linear: return "linear";
    case RopeScaling::yarn: return "yarn";
    case RopeScaling::longrope: return "longrope";
  }
  return "";
}

bool is_scaled(const RopeOptions& rope) { return rope.scaling == RopeScaling::longrope || rope.factor != 1; }

// Returns how much longer sequences may be than the original ones: the factor if a file does not state it.
double growth(const DecoderOptions& options) {
  return std::max(
      1.0, static_cast<double>(options.max_positions) / static_cast<double>(options.rope.original_positions));
}

// Reads the rotary keys of one file into the options.
class RopeReader {
 public:
  RopeReader(const JsonScalars& all, const std::string& file, const Family& family, DecoderOptions& options)
      : all_(all), file_(file), outer_(all, file), family_(family), options_(options) {}

  void read() {
    find_object();
    RopeOptions& rope = options_.rope = family_.options.rope;
    const bool by_type = family_.rope_by_layer_type && has_types();
    const Fields scaling =
        by_type ? inner(kFullAttention) : Fields(all_, file_, object_ == nullptr ? "" : object_);
    rope.theta = outer_.number_or("rope_theta", rope.theta);
    if (object_ == nullptr || scaling.find("rope_theta") == nullptr) outer_.refuse_null("rope_theta");
    if (family_.partial_rotary) read_partial(outer_);
    if (object_ != nullptr) {
      read_theta(scaling);
      read_partial(scaling);
      read_scaling(scaling);
      refuse_unknown(by_type ? std::string(kFullAttention) + "." : "");
    }
    if (rope.theta <= 0) fail(Code::corrupt, file_, ": rope_theta is ", rope.theta, ", not above 0");
    if (family_.rope_by_layer_type) read_theta_of_windows(by_type);
  }

 private:
  // Since transformers 5, rope_parameters has an object for each type of layer in some families.
  bool has_types() const {
    const auto found = all_.find({"rope_parameters", kFullAttention});
    return found != all_.end() && found->second.kind == Kind::object;
  }
  Fields inner(const char* type) const { return Fields(all_, file_, object_, type); }

  void find_object() {
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const JsonValue* value = outer_.find(name);
      if (value == nullptr) continue;
      if (value->kind != Kind::object) outer_.corrupt(name, *value, "not an object");
      if (object_ != nullptr)
        outer_.corrupt(name, *value, "but rope_scaling stands there, too; remove one of the two");
      object_ = name;
    }
  }

  void read_theta(const Fields& scaling) {
    scaling.refuse_null("rope_theta");
    const JsonValue* theta = scaling.find("rope_theta");
    if (theta == nullptr) return;
    options_.rope.theta = scaling.number("rope_theta");
    if (outer_.find("rope_theta") != nullptr && outer_.number("rope_theta") != options_.rope.theta)
      scaling.corrupt("rope_theta", *theta, "not the rope_theta of the whole");
  }

  void read_partial(const Fields& fields) {
    const JsonValue* partial = fields.find(kPartial);
    if (partial == nullptr) return;
    const double given = fields.number(kPartial);
    if (!(given >= 0 && given <= 1)) fields.corrupt(kPartial, *partial, "outside of 0 to 1");
    if (!family_.partial_rotary && given != 1)
      fields.unsupported(kPartial, *partial, "this library rotates whole heads in this family");
    options_.rope.partial = given;
  }

  void read_scaling(const Fields& scaling) {
    const char* key = scaling.find("rope_type") != nullptr ? "rope_type" : "type";
    std::string type = scaling.text_or(key, "default");
    if (type == "default") return;
    if (type == "su" && family_.partial_rotary) type = "longrope";  // as early files name it
    static const RopeScaling kAll[] = {RopeScaling::llama3, RopeScaling::linear, RopeScaling::yarn,
                                       RopeScaling::longrope};
    const auto found = std::find_if(std::begin(kAll), std::end(kAll),
                                    [&](RopeScaling scaling_type) { return type == name_of(scaling_type); });
    if (found == std::end(kAll) || (family_.partial_rotary && *found != RopeScaling::longrope))
      scaling.unsupported(key, *scaling.find(key),
                          family_.partial_rotary
                              ? "this library has default and longrope in this family"
                              : "this library has default, llama3, linear, yarn and longrope");
    RopeOptions& rope = options_.rope;
    rope.scaling = *found;
    switch (rope.scaling) {
      case RopeScaling::llama3:
        rope.factor = scaling.number("factor");
        rope.low_frequency_factor = scaling.number("low_freq_factor");
        rope.high_frequency_factor = scaling.number("high_freq_factor");
        rope.original_positions = scaling.size(kOriginal, 1);
        break;
      case RopeScaling::linear: rope.factor = scaling.number("factor"); break;
      case RopeScaling::yarn: read_yarn(scaling); break;
      case RopeScaling::longrope: read_longrope(scaling); break;
    }
    if (!(rope.factor >= 1)) scaling.corrupt("factor", *scaling.find("factor"), "below 1");
  }

  void read_yarn(const Fields& scaling) {
    RopeOptions& rope = options_.rope;
    const bool has_original = scaling.find(kOriginal) != nullptr;
    rope.original_positions = has_original ? scaling.size(kOriginal, 1) : options_.max_positions;
    rope.factor =
        scaling.find("factor") == nullptr && has_original ? growth(options_) : scaling.number("factor");
    rope.attention_factor = scaling.number_or("attention_factor", 0);
    rope.beta_fast = scaling.number_or("beta_fast", rope.beta_fast);
    rope.beta_slow = scaling.number_or("beta_slow", rope.beta_slow);
    rope.mscale = scaling.number_or("mscale", 0);
    rope.mscale_all_dim = scaling.number_or("mscale_all_dim", 0);
    rope.truncate = scaling.flag_or("truncate", true);
  }

  void read_longrope(const Fields& scaling) {
    RopeOptions& rope = options_.rope;
    const Fields& where = scaling.find(kOriginal) == nullptr && family_.partial_rotary ? outer_ : scaling;
    rope.original_positions = where.find(kOriginal) != nullptr ? where.size(kOriginal, 2)
                              : family_.partial_rotary         ? kMissingOriginalPositions
                                                               : options_.max_positions;
    rope.factor = scaling.find("factor") != nullptr ? scaling.number("factor") : growth(options_);
    rope.attention_factor = scaling.number_or("attention_factor", 0);
    rope.short_factors = factors(scaling, "short_factor");
    rope.long_factors = factors(scaling, "long_factor");
  }

  std::vector<double> factors(const Fields& scaling, const char* name) const {
    const auto pairs = static_cast<size_t>(rotary_width(options_.rope, options_.head_dim) / 2);
    const JsonValue& list = scaling.required(name);
    if (list.kind != Kind::list || list.numbers.size() != list.count || list.count != pairs)
      scaling.corrupt(name, list, text("not a number for each of ", pairs, " pairs that turn"));
    for (const double factor : list.numbers)
      if (!(factor > 0))
        scaling.corrupt(name, list, text("of which one number is ", factor, ", not above 0"));
    return list.numbers;
  }

  // The theta that rope_local_base_freq states, the key of transformers 4, is set already.
  void read_theta_of_windows(bool by_type) {
    double& theta = options_.window_rope_theta;
    if (by_type) {
      const Fields sliding = inner(kSlidingAttention);
      theta = sliding.number_or("rope_theta", family_.options.window_rope_theta);
      if (sliding.text_or("rope_type", "default") != "default")
        sliding.unsupported("rope_type", *sliding.find("rope_type"),
                            "this library scales full_attention alone");
    }
    if (theta <= 0)
      fail(Code::corrupt, file_, ": the rotary theta of layers with a window is ", theta, ", not above 0");
  }

  void refuse_unknown(const std::string& prefix) const {
    std::set<std::string> known = {
        "rope_type",        "type",    "rope_theta", "factor",   "low_freq_factor",
        "high_freq_factor", kOriginal, kPartial,     "finetuned"};  // a note of early files
    const RopeScaling scaling = options_.rope.scaling;
    if (scaling == RopeScaling::yarn)
      known.insert({"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"});
    if (scaling == RopeScaling::longrope) known.insert({"attention_factor", "short_factor", "long_factor"});
    std::set<std::string> all;
    for (const std::string& key : known) all.insert(prefix + key);
    if (!prefix.empty())
      all.insert({kFullAttention, kSlidingAttention, text(kSlidingAttention, ".rope_theta"),
                  text(kSlidingAttention, ".rope_type")});
    Fields(all_, file_, object_).refuse_unknown([&](const std::string& key, const JsonValue&) {
      return all.contains(key);
    });
  }

  const JsonScalars& all_;
  const std::string& file_;
  const Fields outer_;
  const Family& family_;
  DecoderOptions& options_;
  const char* object_ = nullptr;
};

std::string scaling_text(const DecoderOptions& options, const Family& family) {
  const RopeOptions& rope = options.rope;
  JsonObject json(4);
  json.add(family.partial_rotary ? "type" : "rope_type", json_scalar(name_of(rope.scaling)));
  // With partial_rotary, the class of transformers 4 takes type and the two lists and no other key. Further
  // keys are written only where a file without them would mean another model.
  if (!family.partial_rotary || rope.factor != growth(options)) json.add("factor", json_scalar(rope.factor));
  if (rope.scaling == RopeScaling::longrope) {
    json.add("short_factor", json_list(rope.short_factors));
    json.add("long_factor", json_list(rope.long_factors));
  }
  if (rope.scaling == RopeScaling::llama3) {
    json.add("low_freq_factor", json_scalar(rope.low_frequency_factor));
    json.add("high_freq_factor", json_scalar(rope.high_frequency_factor));
  }
  if (rope.scaling == RopeScaling::yarn) {
    json.add("beta_fast", json_scalar(rope.beta_fast));
    json.add("beta_slow", json_scalar(rope.beta_slow));
    json.add("truncate", json_scalar(rope.truncate));
    if (rope.mscale != 0) json.add("mscale", json_scalar(rope.mscale));
    if (rope.mscale_all_dim != 0) json.add("mscale_all_dim", json_scalar(rope.mscale_all_dim));
  }
  if (rope.attention_factor != 0) json.add("attention_factor", json_scalar(rope.attention_factor));
  if (rope.scaling != RopeScaling::linear && !family.partial_rotary)
    json.add(kOriginal, json_scalar(rope.original_positions));
  return std::move(json).close();
}

// Returns whether the origin has the form of transformers 4 and states the angles of the model.
bool states_the_same(const std::string& origin, const Family& family, const DecoderOptions& options) {
  if (origin.empty()) return false;
  try {
    const JsonScalars all = read_json_scalars(origin, kConfigName);
    if (all.contains({"rope_parameters", ""})) return false;
    DecoderOptions stated = options;
    read_rope(all, kConfigName, family, stated);
    return rope_facts(stated.rope) == rope_facts(options.rope);
  } catch (const Error&) {  // the origin is of another family
    return false;
  }
}

}  // namespace

std::set<std::string> rope_keys(const Family& family) {
  if (!has_rotary(family)) return {};
  std::set<std::string> keys = {"rope_theta", "rope_scaling", "rope_parameters"};
  if (family.partial_rotary) keys.insert({kPartial, kOriginal});
  return keys;
}

void read_rope(const JsonScalars& all, const std::string& file, const Family& family,
               DecoderOptions& options) {
  if (has_rotary(family)) RopeReader(all, file, family, options).read();
}

void write_rope(JsonObject& json, const Family& family, const DecoderOptions& options,
                const std::string& origin) {
  if (!has_rotary(family)) return;
  const RopeOptions& rope = options.rope;
  if (states_the_same(origin, family, options)) {
    const std::set<std::string> keys = rope_keys(family);
    const JsonMembers members = json_members(origin, kConfigName);
    for (const auto& [key, value] : members)
      if (keys.contains(key)) json.add(key, std::string(value));
    if (find_member(members, "rope_theta") == nullptr) json.add("rope_theta", json_scalar(rope.theta));
    return;
  }
  json.add("rope_theta", json_scalar(rope.theta));
  if (family.partial_rotary) json.add(kPartial, json_scalar(rope.partial));
  if (is_scaled(rope)) json.add("rope_scaling", scaling_text(options, family));
  if (is_scaled(rope) && family.partial_rotary) json.add(kOriginal, json_scalar(rope.original_positions));
}

RopeFacts rope_facts(const RopeOptions& rope) {
  const bool scaled = is_scaled(rope);
  RopeFacts all = {{"rope_theta", json_scalar(rope.theta)},
                   {kPartial, json_scalar(rope.partial)},
                   {"the factor of rope_scaling", json_scalar(rope.factor)},
                   {"rope_type", json_scalar(scaled ? name_of(rope.scaling) : "default")}};
  if (!scaled || rope.scaling == RopeScaling::linear) return all;
  if (rope.scaling == RopeScaling::llama3) {
    all.emplace_back("low_freq_factor", json_scalar(rope.low_frequency_factor));
    all.emplace_back("high_freq_factor", json_scalar(rope.high_frequency_factor));
  } else {
    all.emplace_back("attention_factor", json_scalar(rope_attention_factor(rope)));
  }
  all.emplace_back(kOriginal, json_scalar(rope.original_positions));
  if (rope.scaling == RopeScaling::yarn) {
    all.emplace_back("beta_fast", json_scalar(rope.beta_fast));
    all.emplace_back("beta_slow", json_scalar(rope.beta_slow));
    all.emplace_back("truncate", json_scalar(rope.truncate));
  } else if (rope.scaling == RopeScaling::longrope) {
    all.emplace_back("short_factor", json_list(rope.short_factors));
    all.emplace_back("long_factor", json_list(rope.long_factors));
  }
  return all;
}

}  // namespace gangway
