// How ranks meet: id blobs, and the caller's own all-gather.
#pragma once

#include "gang/rendezvous/startup.h"
#include "gang_handle.h"

namespace gangway::capi {

void make_id(void* id);  // of kIdBytes

// Collective. A gang whose ranks exchange rank 0's id by o.all_gather. Every rank is in that once, whatever
// it has to refuse: `refusal`, want of memory, or what making the gang refuses before ranks meet. All throw
// the first refusal (lowest rank).
GangPtr create_by_all_gather(const gw_gang_options& o, std::optional<Error> refusal, GangOptions options);

}  // namespace gangway::capi
