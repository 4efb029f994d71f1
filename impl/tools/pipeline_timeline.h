// Timelines of pipelines: what a schedule promises, and what a run did.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/checker.h"
#include "parallel/pipeline/trace.h"
#include "tools/timeline_svg.h"

namespace gangway {

Timeline timeline_of(const Schedule& schedule, const ScheduleReport& report, const std::string& title);
// Computations and collectives of each rank, in milliseconds; where nothing is drawn the rank waits.
Timeline timeline_of(const std::vector<std::vector<TraceEvent>>& ranks, const std::string& title);

}  // namespace gangway
