// Reads the options of FP8.
#pragma once

#include <gangway/fp8.h>

#include "nn/fp8.h"

namespace gangway::capi {

// `name` begins the text of a refusal. Null options are the defaults.
Fp8Options fp8_options_of(const gw_fp8_options* options, const char* name);

}  // namespace gangway::capi
