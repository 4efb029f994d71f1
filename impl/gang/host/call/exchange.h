// The steps of one call on the board, from its start to its end, that are the same for all collectives.
//
// A call is published (the place of its input, and an arrival flag) when it starts, or when the earlier calls
// that share memory with it have ended. All further work is done step by step by any thread of the rank that
// polls or waits. A call whose input peers can read in place has one round. An input outside of the arena is
// staged (staging.h).
//
// Thread rule: under the core's mutex; nothing here waits.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Publishes on the board that this rank has begun the call. Returns false while its slot is still in use.
bool publish(Call& call);
// Does the steps that are possible now, at most one round of each kind. Returns whether it did any.
bool step(Call& call);
// Returns whether the peers that read this call's input, or write into its output, have ended the call.
bool peers_done(Call& call);
// Returns whether a peer uses this rank's memory while it is in the call.
inline bool used_by_peers(const Op& op) { return is_read_in_place(op.source) || op.in_place_on_peers; }

}  // namespace gangway::host
