// Rendezvous of the ranks of a new gang: id blobs, and the caller's own all-gather.
//
// Thread rule: the thread that calls the C function.
#pragma once

#include "gang/rendezvous/startup.h"
#include "gang_handle.h"

namespace gangway::capi {

void make_id(void* id);  // writes kIdBytes random bytes

// Creates a gang whose ranks exchange rank 0's id by o.all_gather. Collective. Every rank calls o.all_gather
// exactly once, also if it fails: with `refusal` (the error of its arguments, if any), out of memory, or in
// the checks of Gang::create before ranks meet. All ranks throw the first error (lowest rank).
GangPtr create_by_all_gather(const gw_gang_options& o, std::optional<Error> refusal, GangOptions options);

}  // namespace gangway::capi
