// gw-train --explain: what a run would do, without training.
#pragma once

#include "tools/train/settings.h"
#include "tools/train/status.h"

namespace gangway::train {

// Prints mesh, memory of a rank, tokens of a step, files, and what the run would resume from. Local. Throws
// Failed with what the run would refuse.
Exit explain(const Settings& settings, int ranks);

// The steps of the complete checkpoints in the folder of a run, ascending. A reader needs no lease.
std::vector<int64_t> complete_steps(const std::string& folder);

}  // namespace gangway::train
