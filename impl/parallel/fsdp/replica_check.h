// Checks that replicas have equal values: equal shards over dp_replicate, and full values with NO_SHARD.
// Ranks exchange checksums, and values only if they differ, to name an element.
//
// Thread rule: one thread at a time; collective over the root gang of the model.
#pragma once

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// Throws MISMATCH on all ranks if replicas differ; the error names `call` and the first element that differs
// between two ranks. Nothing is read or sent if no parameter group has replicas.
void check_replicas(const FsdpState& state, const char* call, Stream& stream);

}  // namespace gangway
