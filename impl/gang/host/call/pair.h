// Sends and receives on the board: one sender, one receiver and their own sequence, on the line of the ordered pair. What
// exchange.h does for the calls of all members, these do for calls of a pair.
//
// Thread rule: under the core's mutex; nothing here waits.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

bool publish_pair(Call& call);
bool step_pair(Call& call);
bool pair_is_done(const Call& call);

}  // namespace gangway::host
