// Which ranks a call waits for, read from the board.
//
// Thread rule: under the core's mutex.
#pragma once

#include <vector>

#include "gang/host/call/lanes.h"

namespace gangway::host {

// The ranks that keep `op` from ending. `only_absent`: only those that have not begun it.
std::vector<int> waiting_for(const Team& team, const Lanes& lanes, const Op& op, bool only_absent);
// The ranks that have not begun `op`; if all have, those that have not done their part.
std::vector<int> missing(const Team& team, const Lanes& lanes, const Op& op);
// The call that holds the work up; null: none.
const Op* blocker(const Lanes& lanes, const HostWork& work);

// Publishes how many calls this rank has begun or will begin. A rank does that when it leaves with calls
// under way (Mark::draining).
void tell_calls(const Team& team, const Lanes& lanes) noexcept;
bool will_begin(const Team& team, const Op& op, int r);  // for a rank that is draining

}  // namespace gangway::host
