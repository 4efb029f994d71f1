// What a save writes besides tensors: the state of optimizers, the mesh, config.json, and the files that are
// carried along.
//
// Thread rule: functions; local.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/run/save_job.h"

namespace gangway {

// Fills in the job's state, texts and carried files. The plan has its tensors. IO: a folder to carry files
// from cannot be read.
void describe_save(SaveJob& job, const std::vector<CheckpointPart>& parts, CheckpointState state);

// The text that must be equal on all ranks.
std::string facts_of_save(const std::vector<CheckpointPart>& parts, const CheckpointState& state);

}  // namespace gangway
