// Timelines of pipelines: of a schedule as planned, and of a run as it happened.
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
// Shows the computations and collectives of each rank, in milliseconds. A rank waits where nothing is drawn.
Timeline timeline_of(const std::vector<std::vector<TraceEvent>>& ranks, const std::string& title);

}  // namespace gangway
