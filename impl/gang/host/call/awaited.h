// Which ranks a call waits for, read from the board.
//
// Thread rule: under the core's mutex.
#pragma once

#include <vector>

#include "gang/host/call/lanes.h"

namespace gangway::host {

// Returns the ranks that `op` waits for. `only_absent`: only those that have not begun it.
std::vector<int> waiting_for(const Team& team, const Lanes& lanes, const Op& op, bool only_absent);
// Returns the ranks that have not begun `op`; if all have, those whose part is not done.
std::vector<int> missing(const Team& team, const Lanes& lanes, const Op& op);
// Returns the call that delays the work, or null.
const Op* blocker(const Lanes& lanes, const HostWork& work);

// Publishes how many calls this rank has begun or will begin. A rank does that when it leaves while calls are
// in flight (Mark::draining).
void tell_calls(const Team& team, const Lanes& lanes) noexcept;
bool will_begin(const Team& team, const Op& op, int r);  // for a rank that is draining

}  // namespace gangway::host
