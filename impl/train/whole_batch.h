// The batches of all data ranks as one, for a model on one rank.
//
// Thread rule: that of Agreement (gang/agreement.h).
#pragma once

#include <string>
#include <vector>

#include "mesh/gangs.h"
#include "train/types.h"

namespace gangway {

// Every rank's batch in bytes, in the order of the data coordinates, each once. Collective over the root gang.
std::vector<std::string> gather_batches(Gangs& gangs, const Batch& batch, Stream& stream);

// Puts the batches together along dim 0, in memory of `device`. Local. INVALID_ARGUMENT: they differ in number,
// dtypes or other dims of their tensors.
Batch joined_batch(const std::vector<std::string>& batches, Device& device);

}  // namespace gangway
