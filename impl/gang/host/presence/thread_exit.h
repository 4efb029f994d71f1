// Detects that the threads of a rank have ended. The kernel reports the end of a process (a pidfd), but not
// that of a thread, so a rank that waits has to check for it.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gang/host/presence/team.h"

namespace gangway::host {

// Returns when the last thread of each rank ended; 0: a thread acts for the rank. Call it before reading
// which ranks a wait lacks, so that everything that a rank did before its end is visible.
std::vector<int64_t> thread_ends_ns(const Team& team);
// Call it for a rank r that does not arrive and that this rank has waited for since `waiting_since_ns`.
// Declares r lost if its threads ended long enough ago; before that, another thread may be about to act for
// it.
void notice_thread_exit(const Team& team, int r, int64_t ended_ns, int64_t waiting_since_ns,
                        int64_t timeout_ms);

}  // namespace gangway::host
