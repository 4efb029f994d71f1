// gw-train --verify: the first step over the mesh against the same step on one rank.
#pragma once

#include "tools/train/settings.h"
#include "tools/train/status.h"

namespace gangway::train {

// Collective over the ranks of the job. Nothing is saved. Throws Failed with what differs.
Exit verify(const Settings& settings);

}  // namespace gangway::train
