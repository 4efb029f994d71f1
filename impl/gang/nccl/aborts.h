// Aborts communicators of NCCL together. An abort waits for every kernel of its device, also for those of other
// communicators, which may wait for the same lost peer: aborted one after another, the first one would wait
// forever. So nobody who aborts waits: communicators are collected for a moment, and a thread aborts them in
// one group.
//
// Thread rule: any thread.
#pragma once

#include <vector>

#include <nccl.h>

namespace gangway::nccl {

// Takes the communicators, and aborts them soon, together with those that come within milliseconds. The call
// does not wait and takes no lock of the caller's.
void abort_soon(std::vector<ncclComm_t> comms) noexcept;

// Waits until all communicators that abort_soon() has taken are aborted, but at most five seconds: after a
// failure a device may never become idle.
void wait_for_aborts() noexcept;

}  // namespace gangway::nccl
