// The batches of all data ranks as one, for a model on one rank.
//
// Thread rule: that of Agreement (gang/agreement.h).
#pragma once

#include <string>
#include <vector>

#include "mesh/gangs.h"
#include "train/types.h"

namespace gangway {

// Returns every data rank's batch in bytes, in the order of the data coordinates. The batch has passed the
// checks of a step. Collective over the root gang.
std::vector<std::string> gather_batches(Gangs& gangs, const Batch& batch, Stream& stream);

// Puts the batches together along dim 0, in memory of `device`; documents and positions lie in memory of the
// host. Local. INVALID_ARGUMENT: the batches have other numbers, dtypes or dims of tensors than each other,
// or other rules for their labels.
Batch joined_batch(const std::vector<std::string>& batches, Device& device);

}  // namespace gangway
