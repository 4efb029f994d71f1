// The files in a folder of a model beside its weights.
//
// Thread rule: functions.
#pragma once

#include <string>
#include <vector>

namespace gangway {

// Returns the names in a folder of a model that are neither its weights nor its config.json, but belong to
// it: the tokenizer's files, generation_config.json, the chat template. IO.
std::vector<std::string> files_to_carry(const std::string& folder);

}  // namespace gangway
