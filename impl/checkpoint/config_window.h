// The keys of a config.json that say which tokens a layer attends to: sliding_window, and which layers have
// it (families/family.h, WindowKeys).
//
// Thread rule: pure functions.
#pragma once

#include <set>
#include <string>

#include "base/json.h"
#include "checkpoint/config_fields.h"
#include "families/family.h"

namespace gangway {

// The types of layers in layer_types and in rope_parameters.
inline constexpr char kFullAttention[] = "full_attention", kSlidingAttention[] = "sliding_attention";

// The keys that files of the family may have.
std::set<std::string> window_keys(const Family& family);

// Sets window and window_layers; layers are set already.
void read_window(const Fields& fields, const Family& family, DecoderOptions& options);

// Adds the keys. The layers are stated as the origin states them: by layer_types if it has that key. No
// window is written as null, because the classes of transformers have a default window for a missing key.
// `origin` are the members of the config.json from which the model was made.
void write_window(JsonObject& json, const Family& family, const DecoderOptions& options,
                  const JsonMembers& origin);

}  // namespace gangway
