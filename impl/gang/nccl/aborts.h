// Aborts communicators of NCCL together. An abort waits for every kernel of its device, also for those of
// other communicators. These may wait for the same lost peer, so that the first of several aborts, one after
// another, would never end. Therefore a thread collects communicators for a few milliseconds and aborts them
// in one group, and callers do not wait for it.
//
// Thread rule: any thread.
#pragma once

#include <vector>

#include <nccl.h>

namespace gangway::nccl {

// Takes the communicators, and aborts them within milliseconds, together with others that were passed
// meanwhile. The call does not wait for the device. If there is no memory or no thread, they stay as they are
// until another call succeeds.
void abort_soon(const std::vector<ncclComm_t>& comms) noexcept;

// Waits until all communicators that abort_soon() has taken are aborted, but at most five seconds: after a
// failure a device may never become idle.
void wait_for_aborts() noexcept;

// Returns whether an abort is still running.
bool aborting() noexcept;

}  // namespace gangway::nccl
