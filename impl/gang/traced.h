// Collectives and waits in a rank's trace (base/tracer.h), and the one clock of all ranks' traces.
//
// Thread rule: any thread; begin_trace is collective.
#pragma once

#include <span>
#include <string>

#include "gang/gang.h"

namespace gangway {

// What a launch of these records is called, and what of it stands beside: gang, channel, bytes, peer.
std::string trace_name(std::span<const Collective> records);
std::string trace_detail(const Gang& gang, Channel channel, std::span<const Collective> records);

// `work`, whose span ends in the trace when this rank learns that it has ended.
WorkPtr traced(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
               int64_t start_ns);

// Collective over a root gang: this rank writes folder/rank-R.json from here on, until its tracer's end() or the end of the
// rank. All refuse with the first refusal, and none traces then. INVALID_ARGUMENT: a gang that is no root, an empty name.
void begin_trace(Gang& gang, const std::string& folder);

}  // namespace gangway
