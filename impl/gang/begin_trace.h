// The start of a trace on all ranks of a gang, with one clock for all of them (base/tracer.h).
//
// Thread rule: collective.
#pragma once

#include <string>

#include "gang/gang.h"

namespace gangway {

// Starts to write the trace of this rank to folder/rank-R.json, until its tracer's end() or the end of the
// rank. Collective over a root gang. If a rank refuses, all throw the first refusal and none traces.
// INVALID_ARGUMENT: the gang is no root gang, or the name is empty.
void begin_trace(Gang& gang, const std::string& folder);

}  // namespace gangway
