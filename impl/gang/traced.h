// Collectives and waits in a rank's trace (base/tracer.h), and one clock for the traces of all ranks.
//
// Thread rule: any thread; begin_trace is collective.
#pragma once

#include <span>
#include <string>

#include "gang/gang.h"

namespace gangway {

// The name of a launch of these records, and its details: gang, channel, bytes, peer.
std::string trace_name(std::span<const Collective> records);
std::string trace_detail(const Gang& gang, Channel channel, std::span<const Collective> records);

// Wraps `work`: its span ends in the trace when this rank learns that the work has ended.
WorkPtr traced(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
               int64_t start_ns);

// Collective over a root gang: from here on this rank writes folder/rank-R.json, until its tracer's end() or
// the end of the rank. If a rank refuses, all throw the first refusal and none traces. INVALID_ARGUMENT: a
// gang that is no root, an empty name.
void begin_trace(Gang& gang, const std::string& folder);

}  // namespace gangway
