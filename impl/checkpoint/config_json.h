// The config.json of a decoder, as Hugging Face's transformers has it. Which key means what is data of the
// model's family (families/family.h); gangway/layers.h shows it to callers, at gw_decoder_options_from_folder.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "nn/layers.h"

namespace gangway {

inline constexpr char kConfigName[] = "config.json";
inline constexpr uint64_t kConfigLimit = 1 << 20;  // bytes

// Returns the text of a config.json in the keys of options.family. NOT_SUPPORTED: no such family.
std::string config_json(const DecoderOptions& options, DType dtype);

// Reads a config.json. Errors begin with `name`. CORRUPT: no such JSON; a key is missing, of the wrong kind
// or out of its range. NOT_SUPPORTED: a model_type that is no family of this library, a value that
// make_decoder has no form of, or a key that is neither in the family's table nor harmless.
DecoderOptions parse_config_json(std::string_view json, const std::string& name);

// Reads the config.json of a folder. IO as well.
DecoderOptions decoder_options_of_folder(const std::string& folder);

// INVALID_ARGUMENT with both values: a model of `options` would not compute what `stated`, by the file
// `name`, says. What bounds or starts a model alone (max_position_embeddings, initializer_range) may differ.
void check_same_function(const DecoderOptions& stated, const DecoderOptions& options,
                         const std::string& name);

}  // namespace gangway
