// Ranks that wait for each other in calls of different gangs, or in different calls of one. A rank that has waited for
// long says on the arena which call it is in and who has not begun it; one that finds a closed ring breaks all gangs of
// the ring with MISMATCH.
//
// A ring is real when every record in it stood still while all of them were checked: a blocked rank begins no
// call, and a call that a blocked rank has not begun cannot end.
#pragma once

#include "gang/host/waiting.h"

namespace gangway::host {

void publish_wait(Core& core, Waitable& what);
void clear_wait(Core& core) noexcept;
bool break_cycle(Team& team);  // true: a cycle was found and broken

}  // namespace gangway::host
