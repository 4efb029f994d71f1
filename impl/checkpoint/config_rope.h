// The keys of a config.json that state the rotary angles: rope_theta and rope_scaling, or rope_parameters,
// which since transformers 5 holds both.
//
// Thread rule: pure functions.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/config_fields.h"
#include "families/family.h"

namespace gangway {

// The keys that files of the family may have; none if its models have no rotary angles.
std::set<std::string> rope_keys(const Family& family);

// Sets rope and window_rope_theta; head_dim and max_positions are set already.
void read_rope(const JsonScalars& all, const std::string& file, const Family& family,
               DecoderOptions& options);

// Adds the keys in the form of transformers 4, which transformers 5 reads as well. `origin` is the text of
// the config.json from which the model was made, or empty. If it has that form and states the same angles,
// its keys are written as they stand there.
void write_rope(JsonObject& json, const Family& family, const DecoderOptions& options,
                const std::string& origin);

// Returns what determines the angles, as names and JSON. Two models have the same angles if all facts are
// equal; the lists have their names in common up to the first fact that differs.
using RopeFacts = std::vector<std::pair<const char*, std::string>>;
RopeFacts rope_facts(const RopeOptions& rope);

}  // namespace gangway
