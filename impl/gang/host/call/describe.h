// What a slot on the board says about a call. Thread rule: under the core's mutex.
#pragma once

#include "gang/host/call/algorithm.h"

namespace gangway::host {

// Fills in what slots of channels and slots of pairs have in common, and decides how the input travels.
// `slots` is how many slots the call's lane has.
void describe(Call& call, Slot& slot, int slots);

}  // namespace gangway::host
