// The life of one call on the board, from its start to its end; what all collectives have in common.
//
// A call is published (where its input lies, and an arrival flag) when it starts, or when the calls before it that share
// memory with it have ended. Everything else is pulled, step by step, by any thread of the rank that polls or waits. A
// call whose input peers can read where it lies has one round; an input outside of the arena is staged (staging.h).
//
// Thread rule: under the core's mutex; none of these waits.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Says on the board that this rank has begun the call. False: its slot is still in use.
bool publish(Call& call);
// Does what can be done now, at most one round of each kind. True: something was.
bool step(Call& call);
// Have those peers ended the call that read its input, or write into its output?
bool peers_done(Call& call);
// Does a peer use this rank's memory while it is in the call?
inline bool used_by_peers(const Op& op) { return op.source == Source::direct || op.in_place_on_peers; }

}  // namespace gangway::host
