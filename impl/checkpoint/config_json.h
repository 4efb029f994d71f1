// Reads and writes the config.json of a decoder, in the form of Hugging Face's transformers. The meaning of
// the keys is data of the model's family (families/family.h). The documentation for callers is in
// gangway/layers.h, at gw_decoder_options_from_folder.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "nn/layers.h"

namespace gangway {

inline constexpr char kConfigName[] = "config.json";
inline constexpr uint64_t kConfigLimit = 1 << 20;  // bytes

// Returns the text of a config.json with the keys of options.family. NOT_SUPPORTED: there is no such family.
// INVALID_ARGUMENT: transformers would read another model (check_saves).
// `origin`: the text of the config.json from which the model was made, or empty. Its keys that this library
// does not need, such as ids of tokens and notes of the user, are written as they stand there.
std::string config_json(const DecoderOptions& options, DType dtype, const std::string& origin = "");

// Reads a config.json. Errors begin with `name`. CORRUPT: the text is not JSON, or a value is of the wrong
// type or out of range. NOT_SUPPORTED: this library has no family of that model_type, make_decoder does not
// support a value, or a key may change the mathematics and the family's table does not have it.
DecoderOptions parse_config_json(std::string_view json, const std::string& name);

// Reads the config.json of a folder. Throws as parse_config_json; IO: the file cannot be read.
DecoderOptions decoder_options_of_folder(const std::string& folder);

// Checks that a model of `options` computes the same function as one of `stated`, the options in the file
// `name`. Options that only bound or initialize a model (max_position_embeddings, initializer_range), and
// dropouts, may differ. INVALID_ARGUMENT: another option differs; the text has both values.
void check_same_function(const DecoderOptions& stated, const DecoderOptions& options,
                         const std::string& name);

}  // namespace gangway
