// The start of a trace on all ranks of a gang, with one clock for all of them (base/tracer.h).
//
// Thread rule: collective.
#pragma once

#include <string>

#include "gang/gang.h"

namespace gangway {

// Collective over a root gang: from here on this rank writes folder/rank-R.json, until its tracer's end() or
// the end of the rank. If a rank refuses, all throw the first refusal and none traces. INVALID_ARGUMENT: a
// gang that is no root, an empty name.
void begin_trace(Gang& gang, const std::string& folder);

}  // namespace gangway
