// A training run from its settings: makes or restores everything, trains, evaluates, saves, and says how it
// ended.
#pragma once

#include <memory>

#include "tools/train/settings.h"
#include "tools/train/status.h"

namespace gangway::train {

// Collective over the ranks of the job. Throws Failed.
Exit run(const Settings& settings);

}  // namespace gangway::train
