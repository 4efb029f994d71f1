// Detects that the threads of a rank have ended. A kernel object tells of the end of a process, but none of
// the end of a thread, so a rank that waits has to look for it.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gang/host/presence/team.h"

namespace gangway::host {

// When the last thread of each rank ended. 0: a thread acts for the rank. Call it before asking which ranks a
// wait lacks: whatever a rank did before its end is then visible.
std::vector<int64_t> thread_ends_ns(const Team& team);
// Rank r does not come, and this rank has waited for it since `waiting_since_ns`. Declares r lost if its
// threads ended long enough ago; before that, another thread may be about to act for it.
void notice_thread_exit(const Team& team, int r, int64_t ended_ns, int64_t waiting_since_ns,
                        int64_t timeout_ms);

}  // namespace gangway::host
