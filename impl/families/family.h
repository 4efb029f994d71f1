// The families layer. Belongs here: what is particular to one published model family, as data: its options,
// the keys of its config.json, the names of its parameters, its tensor parallel plan. Does not: code that
// runs for a model (nn), code that reads and writes files (checkpoint), code that splits modules (parallel).
// Those layers read this data and name no family.
//
// A family is one file that fills in a Family, and one line of the list in registry.cpp.
//
// Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nn/layers.h"

namespace gangway {

// A member of DecoderOptions.
using OptionMember =
    std::variant<int64_t DecoderOptions::*, double DecoderOptions::*, bool DecoderOptions::*>;

// A key of config.json that stands for an option.
struct ConfigKey {
  const char* name;
  OptionMember member;
  // What a file without the key means. An option of 0 may mean "derived from others" (nn/layers.h).
  struct Required {};  // such a file is refused
  using SameAs = bool DecoderOptions::*;
  std::variant<Required, double, SameAs> missing;
  int64_t least = 1;  // of an integer
  int64_t most = INT32_MAX;
  bool bounds_only = false;     // it bounds or starts a model, but does not change what the model computes
  bool only_if_needed = false;  // it is written only if a file without it would mean something else
};

// A key whose other values this library has no form of.
struct FixedKey {
  using Value = std::variant<bool, double, const char*>;
  const char* name;
  std::vector<Value> values;  // those that it has; the first one is written
  const char* known;          // what this library has instead, for the refusal
  bool written = false;
};

// How the family's config.json says that tokens attend to a window.
enum class WindowKeys : uint8_t {
  none,             // it has no such keys, and none are written
  size,             // sliding_window
  size_and_switch,  // sliding_window, which counts only while use_sliding_window is true
};

struct Family {
  std::string name;          // model_type
  std::string architecture;  // of transformers
  // What a model of the family has when nothing else is said. A member that no key sets has this value in all
  // of them.
  DecoderOptions options;
  std::vector<ConfigKey> keys;
  std::vector<FixedKey> fixed;
  std::vector<const char*>
      harmless;  // keys of this family that change nothing, besides those of all families
  WindowKeys window = WindowKeys::none;
  // Rows of parallel/plan.h as text, with {between} for the layout of values between layers and {logits} for
  // that of the logits. A row of sequence_parallel stands only with sequence parallelism.
  std::string plan;
};

// --- what families share -----------------------------------------------------------------------------------

// What a config.json means that has no such key, which differs between the classes of transformers.
struct MissingKeys {
  double kv_heads = 0;  // num_key_value_heads
  double head_dim = 0;
  double max_positions = 2048;  // max_position_embeddings
};
// A family with the keys and the plan that every decoder of this library has.
Family decoder_family(const char* name, const char* architecture, const MissingKeys& missing);
// attention_bias, which in transformers means q, k, v and o; attention_out_bias is a key of this library for
// o alone.
void add_attention_bias(Family& family);
// Keys of any model's config.json that say nothing about what it computes.
bool is_harmless(const Family& family, const std::string& key);

// Every member of DecoderOptions that a number or a flag says, with its name, but for those of `rope`.
struct NamedOption {
  const char* name;
  OptionMember member;
};
const std::vector<NamedOption>& named_options();
double get(const DecoderOptions& options, const OptionMember& member);
void set(DecoderOptions& options, const OptionMember& member, double value);

// --- the families ------------------------------------------------------------------------------------------

const std::vector<Family>& families();
// Null: there is none of that name.
const Family* find_family(const std::string& name);
// NOT_SUPPORTED names the families that there are.
const Family& family_named(const std::string& name);
std::string family_names();  // "llama, qwen2 and mistral"

// INVALID_ARGUMENT: an option that the config.json of options.family cannot say, with its name.
void check_expressible(const DecoderOptions& options);

struct FamilyPlanOptions {
  bool sequence_parallel = false;  // norms and what stands between layers work on parts of the sequence
  bool loss_parallel = true;       // logits stay split over the vocabulary
  bool operator==(const FamilyPlanOptions&) const = default;
};
// The plan of the decoder's family as text.
std::string family_plan(const DecoderOptions& decoder, const FamilyPlanOptions& options);

}  // namespace gangway
