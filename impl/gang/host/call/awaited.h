// Whom a call waits for, read from the board.
//
// Thread rule: under the core's mutex.
#pragma once

#include <vector>

#include "gang/host/call/lanes.h"

namespace gangway::host {

// Ranks that keep `op` from ending. `only_absent`: those of them that have not begun it.
std::vector<int> waiting_for(const Team& team, const Lanes& lanes, const Op& op, bool only_absent);
// Those that have not begun it; if all have: those that have not done their part.
std::vector<int> missing(const Team& team, const Lanes& lanes, const Op& op);
// The call that holds the work up; null: none.
const Op* blocker(const Lanes& lanes, const HostWork& work);

// A rank that leaves with calls on their way (Mark::draining) tells how many it has begun, or will yet begin.
void tell_calls(const Team& team, const Lanes& lanes) noexcept;
bool will_begin(const Team& team, const Op& op, int r);  // of such a rank

}  // namespace gangway::host
