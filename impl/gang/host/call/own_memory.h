// Inputs that lie in their owner's own memory, from which readers copy them by the kernel
// (memory/peer_reads.h).
//
// Thread rule: under the core's mutex.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Returns whether the input of a call may stay where it is.
bool may_stay(const Call& call);
// Copies from an address of a member. Returns false if that member is gone: the call makes no more steps,
// and the wait finds out why. IO: the member lives and has no such memory.
bool read_own(const Call& call, int peer, uint64_t address, void* to, size_t bytes);

}  // namespace gangway::host
