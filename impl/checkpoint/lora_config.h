// Reads and writes the adapter_config.json of PEFT.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/lora.h"

namespace gangway {

inline constexpr char kAdapterConfigName[] = "adapter_config.json";

// Reads an adapter_config.json. Errors begin with `name`. The patterns of the result stand for
// target_modules. CORRUPT: the text is not JSON, or a value is of the wrong type or out of range.
// NOT_SUPPORTED: a method besides LoRA, target_modules as a regular expression, or a key that this library
// does not know and whose value is not null, false or empty.
LoraOptions parse_adapter_config(std::string_view json, const std::string& name);

// Reads the adapter_config.json of a folder. Throws as parse_adapter_config; IO: the file cannot be read.
LoraOptions lora_options_of_folder(const std::string& folder);

struct AdapterFacts {
  std::vector<std::string> targets;  // target_modules
  std::string base;                  // the folder or name of the base model; empty: not known
  bool is_language_model = false;
};
std::string adapter_config(const LoraOptions& options, const AdapterFacts& facts);

}  // namespace gangway
