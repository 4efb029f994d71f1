// Computes the output of a collective if every rank of the gang has the caller's data. The self engine (one
// rank) and the fake engine (any size) use this function.
//
// Thread rule: pure functions; the memory is the caller's.
#pragma once

#include "gang/collective.h"

namespace gangway {

// Handles any op; send and recv do nothing here. Null buffers (of the meta device) are skipped. broadcast and
// scatter are defined on the root only.
void act_on_own_data(const Collective& c, int rank, int size);

// Returns how many bytes of payload the rank receives from its peers. An all_reduce counts as a
// reduce-scatter of balanced parts and an all-gather of them. A send, a barrier, and data from the rank
// itself count 0.
uint64_t received_bytes(const Collective& c, int rank, int size);

}  // namespace gangway
