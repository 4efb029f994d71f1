// How ranks get the arena: rank 0 listens on an abstract Unix socket with a random name and hands its
// descriptor to whoever shows the token. Name and token travel through the store. Ranks that cannot reach the
// socket are not on this host (a network namespace counts as one).
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "gang/host/arena.h"
#include "gang/store.h"

namespace gangway::host {

// Rank 0: creates and hands over to size - 1 peers. Others: fetch and map. All throw NOT_SUPPORTED when one
// of them cannot.
std::shared_ptr<Arena> share_arena(Store& store, int rank, int size, const ArenaOptions& options,
                                   Deadline deadline);

}  // namespace gangway::host
