// Collectives in a rank's trace (base/tracer.h).
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "gang/collective.h"
#include "gang/rank.h"
#include "gang/work.h"

namespace gangway {

// The name of a launch of these records, and its details: gang, channel, bytes, peer.
std::string trace_name(std::span<const Collective> records);
std::string trace_detail(const std::string& gang, Channel channel, std::span<const Collective> records);

// Wraps `work`: its span ends in the trace when this rank learns that the work has ended.
WorkPtr traced(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
               int64_t start_ns);

}  // namespace gangway
