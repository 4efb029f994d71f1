// Reads gw_lora_options, for every call that takes them.
//
// Thread rule: pure functions.
#pragma once

#include <gangway/lora.h>

#include "nn/lora.h"

namespace gangway::capi {

// Null options are the defaults. `name` begins the texts of refusals, as in "options.patterns".
LoraOptions lora_options_of(const gw_lora_options* options, const char* name);

}  // namespace gangway::capi
