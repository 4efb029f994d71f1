// Ranks that are threads and whose thread has ended. No kernel object tells of a thread's end as of a process's, so a
// waiting rank looks for it.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gang/host/presence/team.h"

namespace gangway::host {

// When the last thread of each rank ended; 0: a thread acts for the rank. Read it before asking whom a wait lacks: what a
// rank did before its end is then seen.
std::vector<int64_t> thread_ends_ns(const Team& team);
// Rank r does not come, and this one has waited for it since `waiting_since_ns`. Declares r lost when its threads ended
// long ago; before that another thread may be about to act for it.
void notice_thread_exit(const Team& team, int r, int64_t ended_ns, int64_t waiting_since_ns,
                        int64_t timeout_ms);

}  // namespace gangway::host
