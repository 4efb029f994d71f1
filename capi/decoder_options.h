// Reads and fills gw_decoder_options, for calls that make a decoder or plan one.
//
// Thread rule: any thread.
#pragma once

#include <gangway/layers.h>

#include "nn/layers.h"

namespace gangway::capi {

// INVALID_ARGUMENT: a number that is not finite, an enum that is out of its range.
DecoderOptions decoder_options_of(const gw_decoder_options& options);
// The texts live as long as the library.
gw_decoder_options raw_options_of(const DecoderOptions& options);

// Checks options.initializer_range. INVALID_ARGUMENT: it is not finite, or below 0.
double deviation_of(double range);

}  // namespace gangway::capi
