// The families layer holds, as data, what is particular to one published model family: its options, the keys
// of its config.json, the names of its parameters and its tensor parallel plan. Code that computes (nn),
// reads and writes files (checkpoint) or splits modules (parallel) does not belong here. Those layers read
// this data and never name a family.
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
    std::variant<int64_t DecoderOptions::*, double DecoderOptions::*, bool DecoderOptions::*,
                 QkNorm DecoderOptions::*, Activation DecoderOptions::*, BlockNorms DecoderOptions::*>;

// A key of config.json that holds the value of an option.
struct ConfigKey {
  const char* name;
  OptionMember member;
  // The value if a file does not have the key, as in the class of transformers: a number (0 may mean "derived
  // from other options", nn/layers.h), or the value of another option.
  using SameAs = bool DecoderOptions::*;
  std::variant<double, SameAs> missing;
  // What a value of null means to the class: the class cannot work with it and the file is refused, the same
  // as a missing key, or 0 ("derived from other options").
  enum class Null : uint8_t { refused, missing, zero };
  Null null = Null::refused;
  int64_t least = 1;  // bounds of an integer
  int64_t most = INT32_MAX;
  // The option limits or initializes a model (max_position_embeddings, initializer_range), or acts in
  // training only (a dropout), but does not change what the model computes.
  bool bounds_only = false;
  bool only_if_needed = false;  // the key is written only if a file without it would mean another value
  bool as_in_origin = false;    // likewise, if the file of the origin does not have it
  bool zero_is_null = false;    // 0 is written as null
  // The key holds n where the option is 1 / sqrt(n): query_pre_attn_scalar and score_scale.
  bool inverse_root = false;
};

// A key of which this library supports only some values.
struct FixedKey {
  using Value = std::variant<bool, double, const char*>;
  const char* name;
  std::vector<Value> values;  // the supported values
  const char* known;          // what this library supports, for the text of a refusal
  bool written = false;       // whether the first value is written to files
  bool null_refused = false;  // whether the class of transformers cannot work with null
};

// Two flags of which the first cannot be saved without the second: transformers would read another model.
struct Requirement {
  const char* option;
  bool DecoderOptions::*member;
  const char* needs;
  bool DecoderOptions::*needed;
  const char* why;
};

// A parameter that files of the family name in another way than the modules. Each name may have one `*`,
// which stands for the number of a layer: "model.layers.*.mlp.up_proj.weight",
// "transformer.h.*.mlp.c_fc.weight". Parameters with one name in the files are fused there: their rows
// (dim 0) lie in one tensor, one parameter after the other in the order of the table.
struct RenamedParameter {
  const char *ours, *theirs;
  bool transposed = false;  // the files store the matrix, fused or not, as [in, out]
};

// How the family's config.json states the window that tokens attend to. A file without sliding_window means
// kMissingWindow, the default of the classes; null means no window.
enum class WindowKeys : uint8_t {
  none,  // it has no such keys, and none are written
  size,  // sliding_window, in all layers
  // sliding_window, which counts only while use_sliding_window is true (by default it is not), in the layers
  // that layer_types says, or else from layer max_window_layers on.
  size_and_switch,
  // sliding_window, in the layers that layer_types says, or else in all but every n-th layer (WindowPeriod).
  size_and_period,
};
struct WindowPeriod {
  int64_t layers = 0;         // n, if the file does not say it
  const char* key = nullptr;  // the key that says it; null: there is none
};
inline constexpr int64_t kMissingWindow = 4096;  // of the classes that have windows
inline constexpr int64_t kMissingMaxWindowLayers = 28;
// original_max_position_embeddings, of the class with partial_rotary.
inline constexpr int64_t kMissingOriginalPositions = 4096;

struct Family {
  std::string name;          // model_type
  std::string architecture;  // class name in transformers
  // The defaults of the family. An option that no key sets has this value in all of its models.
  DecoderOptions options;
  std::vector<ConfigKey> keys;
  std::vector<FixedKey> fixed;
  // The ids that the class of transformers takes where its file does not state them; -1: none.
  struct {
    int64_t bos = -1, eos = -1, pad = -1;
  } token_ids;
  std::vector<const char*> harmless;  // further keys that do not change what a model computes (is_harmless)
  WindowKeys window = WindowKeys::none;
  WindowPeriod period;  // of WindowKeys::size_and_period
  // Layers with a window have a rotary theta of their own, without scaling: rope_local_base_freq, or since
  // transformers 5 an object in rope_parameters for each type of layer.
  bool rope_by_layer_type = false;
  // A part of each head may turn (partial_rotary_factor), and the only scaling is longrope, whose
  // original_max_position_embeddings stands in the outer object.
  bool partial_rotary = false;
  std::vector<Requirement> requirements;
  std::vector<RenamedParameter> renamed;  // parameters that are not here have the same name in files
  // What names in files begin with, as "transformer."; files of a model without a head do not have it.
  const char* base_prefix = "";
  // Tensors in files, by patterns of names in files, that follow from the options. They are not read.
  std::vector<const char*> derived;
  // The tensor parallel plan as text (parallel/plan.h). {between} stands for the layout of values between
  // layers, {logits} for that of the logits. Rows of style sequence_parallel are used only with sequence
  // parallelism.
  std::string plan;
};

// --- what families share -----------------------------------------------------------------------------------

// The values if a config.json does not have the keys. They differ between the classes of transformers.
struct MissingKeys {
  double vocab = 32000;
  double dim = 4096;    // hidden_size
  double layers = 32;   // num_hidden_layers
  double heads = 32;    // num_attention_heads
  double ffn = 11008;   // intermediate_size
  double kv_heads = 0;  // num_key_value_heads
  double head_dim = 0;
  ConfigKey::Null null_head_dim = ConfigKey::Null::zero;
  double max_positions = 2048;  // max_position_embeddings
  double eps = 1e-6;            // rms_norm_eps
  bool tied = false;            // tie_word_embeddings
};
// Returns a family with the keys and the plan that every decoder of this library has.
Family decoder_family(const char* name, const char* architecture, const MissingKeys& missing);
// Adds two keys: attention_bias, which in transformers is for q, k, v and o, and attention_out_bias, a key of
// this library for o alone.
void add_attention_bias(Family& family);
// Replaces the activation of a family: its key, which may be hidden_activation, its names, and what this
// library has, for a refusal.
void set_activation(Family& family, Activation activation, FixedKey key);
// Sets the norms of q and k, with their rows of the tensor parallel plan.
void set_qk_norm(Family& family, QkNorm norm);
// Gives the model a learned vector for each position in place of rotary angles, with the rows of the plan.
void set_learned_positions(Family& family);
// Sets what the families gemma, gemma2 and gemma3_text have in common, and what only the last two have.
void make_gemma(Family& family);
void make_gemma_sandwich(Family& family);
// Returns whether a key does not change what a model of the family computes. True for keys that are known and
// harmless, and for keys of which no word is one that configurations of models use: notes of a user.
bool is_harmless(const Family& family, const std::string& key);

// Returns the name that files of the family have for a parameter.
std::string name_in_files(const Family& family, const std::string& parameter);
// Returns the row of the table that renames a parameter; null: it has its own name. Rows come in the order of
// their table, so that their addresses say which of two comes first.
const RenamedParameter* renaming_of(const Family& family, const std::string& parameter);

// Every member of DecoderOptions that is a number, a flag or an enumeration, with its name. Those of `rope`
// and `window`, which WindowKeys states, are not among them.
struct NamedOption {
  const char* name;
  OptionMember member;
};
const std::vector<NamedOption>& named_options();
// Returns the key of the family's config.json that holds the option; null: it has none.
const ConfigKey* key_of(const Family& family, const OptionMember& member);
// Returns a letter for each layer: w if it has a window, else f.
std::string layers_with_window(const DecoderOptions& options);
double get(const DecoderOptions& options, const OptionMember& member);
void set(DecoderOptions& options, const OptionMember& member, double value);

// --- the families ------------------------------------------------------------------------------------------

const std::vector<Family>& families();
// Returns null if there is no family of that name.
const Family* find_family(const std::string& name);
// NOT_SUPPORTED: there is no family of that name; the text lists all.
const Family& family_named(const std::string& name);
std::string family_names();  // "llama, qwen2 and mistral"

// INVALID_ARGUMENT: the config.json of options.family has no key for an option and its value is not the
// family's. The text names the option.
void check_expressible(const DecoderOptions& options);
// INVALID_ARGUMENT: transformers would read another model from the config.json of options.family, although
// this library would read the same one. The text names the options.
void check_saves(const DecoderOptions& options);

struct FamilyPlanOptions {
  bool sequence_parallel = false;  // norms, and values between layers, are split along the sequence
  bool loss_parallel = true;       // logits stay split over the vocabulary
  bool operator==(const FamilyPlanOptions&) const = default;
};
// Returns the plan of the decoder's family as text.
std::string family_plan(const DecoderOptions& decoder, const FamilyPlanOptions& options);

}  // namespace gangway
