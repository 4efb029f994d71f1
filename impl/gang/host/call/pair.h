// Sends and receives on the board: one sender, one receiver and a sequence of their own, on the line of the
// ordered pair. These functions do for calls of a pair what exchange.h does for calls of all members.
//
// Thread rule: under the core's mutex; nothing here waits.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

bool publish_pair(Call& call);
bool step_pair(Call& call);
bool pair_is_done(const Call& call);

}  // namespace gangway::host
