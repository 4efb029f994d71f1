// What a collective leaves in `out` when every rank of the gang holds the caller's data: the self engine (one
// rank) and the fake engine (any size) are this function. Thread rule: pure; memory is the caller's.
#pragma once

#include "gang/collective.h"

namespace gangway {

// Any op but send and recv (they do nothing here). Null buffers (meta) are passed over. Roots: broadcast and
// scatter are defined on the root alone.
void act_on_own_data(const Collective& c, int rank, int size);

// Payload in bytes that the rank receives from its peers: an all_reduce is a reduce-scatter of balanced parts
// and an all-gather of them; a send, a barrier and everything a rank gets from itself are 0.
uint64_t received_bytes(const Collective& c, int rank, int size);

}  // namespace gangway
