// One save, from the copied rows to the commit. The writers of all ranks run it together; rank 0 makes the
// files, the others write their rows into them.
//
// Thread rule: one thread at a time; write_checkpoint is collective over the meeting's gang.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/run/held_folder.h"
#include "checkpoint/run/meeting.h"
#include "checkpoint/run/save_plan.h"

namespace gangway {

struct SaveJob {
  SavePlan plan;
  CheckpointState state;                                   // complete but for `files`
  std::vector<std::pair<std::string, std::string>> texts;  // further files: name in the checkpoint, contents
  std::vector<std::pair<std::string, std::string>> carried;  // likewise: name in the checkpoint, path
  int keep = 0;
  // Writes one tensor's rows: from the host copy, or from where they are.
  std::function<void(const SavedRows& rows, TensorSetWriter& writer)> write;
};

// Writes and commits a checkpoint, and removes old ones. If a rank fails, the folder is removed and all ranks
// throw its error. Errors are those of files (IO), of the lease (INVALID_STATE) and of the gang.
void write_checkpoint(SaveJob& job, HeldFolder& folder, Meeting& meeting);

}  // namespace gangway
