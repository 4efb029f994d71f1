// Verifies the files of a checkpoint against its state.json.
//
// Thread rule: functions; several threads may verify different blocks.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/run/state.h"

namespace gangway {

// Reads and parses folder/state.json. NOT_FOUND: there is none. CORRUPT, NOT_SUPPORTED, IO.
CheckpointState read_state(const std::string& folder);

// Verifies share `index` of `count` of all headers, files and blocks of a checkpoint (a rank takes its own
// share). CORRUPT with file, tensor and box: a hash or a size differs, blocks of a tensor do not cover it
// exactly, a file of the list is missing, or a tensor has no block. `progress` (may be empty) is told the
// bytes read so far.
void verify_checkpoint(const std::string& folder, const CheckpointState& state, size_t index = 0,
                       size_t count = 1, const std::function<void(uint64_t bytes)>& progress = {});

}  // namespace gangway
