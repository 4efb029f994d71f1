// Compares the values of ranks that must hold the same: own rows over dp_replicate, whole values under NO_SHARD. Ranks
// exchange checksums; values travel only to say which element differs.
//
// Thread rule: one thread at a time; collective over the root of the units' gangs.
#pragma once

#include "parallel/fsdp/fsdp_state.h"

namespace gangway {

// MISMATCH, on all ranks, names the first element that differs between two of them; `call` is what the error says.
// Refusals are agreed. Nothing is read or sent if no unit has replicas.
void check_replicas(const FsdpState& state, const char* call, Stream& stream);

}  // namespace gangway
