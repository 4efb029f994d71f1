// What lies in a folder of a model: the names of its tensors, and the files beside its weights.
//
// Thread rule: functions.
#pragma once

#include <string>
#include <vector>

#include "families/family.h"

namespace gangway {

// Returns the name that files have for a parameter of `root`: that of the decoder's family, or its own.
inline std::string name_in_files(const Module& root, const std::string& parameter) {
  const DecoderOptions* decoder = decoder_options(root);
  return decoder == nullptr ? parameter : name_in_files(family_named(decoder->family), parameter);
}

// Returns the names in a folder of a model that are neither its weights nor its config.json, but belong to
// it: the tokenizer's files, generation_config.json, the chat template. IO.
std::vector<std::string> files_to_carry(const std::string& folder);

}  // namespace gangway
