// Describes a call in a slot of the board.
//
// Thread rule: under the core's mutex.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Fills in the fields that slots of channels and slots of pairs have in common, and decides how the peers get
// the input. `slots` is the number of slots of the call's lane.
void describe(Call& call, Slot& slot, int slots);

}  // namespace gangway::host
