// Reads gw_decoder_options, for calls that make a decoder or plan one.
//
// Thread rule: functions without state; any thread.
#pragma once

#include <gangway/layers.h>

#include "nn/layers.h"

namespace gangway::capi {

// INVALID_ARGUMENT: a number that is not finite.
DecoderOptions decoder_options_of(const gw_decoder_options& options);

}  // namespace gangway::capi
