// The keys of a config.json that say the rotary angles: rope_theta and rope_scaling, or rope_parameters, which
// since transformers 5 holds both.
//
// Thread rule: pure functions.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "checkpoint/config_fields.h"
#include "checkpoint/json_text.h"
#include "families/family.h"

namespace gangway {

// The keys that files of the family may have; none if its models have no rotary angles.
std::set<std::string> rope_keys(const Family& family);

// Sets rope and window_rope_theta; head_dim and max_positions are set already.
void read_rope(const JsonScalars& all, const std::string& file, const Family& family,
               DecoderOptions& options);

// Adds the keys in the form of transformers 4, which transformers 5 reads as well: as the config.json from
// which the model was made has them, if it has that form and says the same. `origin`: its text, or empty.
void write_rope(JsonObject& json, const Family& family, const DecoderOptions& options,
                const std::string& origin);

// INVALID_ARGUMENT, with a text that begins as that of check_same_function: the angles differ.
void check_same_rope(const RopeOptions& stated, const RopeOptions& own, const std::string& file);

}  // namespace gangway
