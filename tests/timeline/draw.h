// A simulated step as trace files for ui.perfetto.dev and as a picture.
//
// Thread rule: pure functions, and files.
#pragma once

#include <string>

#include "timeline/simulate.h"
#include "tools/timeline_svg.h"

namespace gangway::timeline {

// One file of all ranks. IO.
void write_trace(const std::vector<std::vector<gpu_emulation::Entry>>& ranks, const StepTimes& times,
                 const std::string& path);

// Of one rank: what computes, and each stream's collectives; milliseconds.
Timeline picture(const std::vector<gpu_emulation::Entry>& rank, const RankTimes& times,
                 const std::string& title);

}  // namespace gangway::timeline
