// A core that can block a thread of its rank. The thread first spins, then yields the processor, then sleeps
// on the rank's doorbell. In every turn it drives all outstanding calls of the rank. It reads a clock only
// after the first phase.
//
// All waits throw the engine's error when it is broken, NOT_READY when the caller's own deadline passes
// (which is harmless), and what the interrupt hook throws. The gang's deadline is TIMEOUT and breaks the
// engine.
//
// Thread rule: any thread of the rank.
#pragma once

#include "gang/host/core.h"

namespace gangway::host {

class BlockingCore final : public Core {
 public:
  using Core::Core;

  void wait(HostWork& work, uint32_t states, Deadline deadline) override;  // Driver
  // Waits until counter >= at_least. Rank `owner` publishes the counter; `what` names the wait.
  void wait_for_counter(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner, const char* what);
  void publish_counter(std::atomic<uint64_t>& counter, uint64_t value);
  // Waits until all ranks are in shutdown, and marks that this rank has left. After `deadline` it throws
  // TIMEOUT, which breaks the engine.
  void shut_down(Deadline deadline);
};

}  // namespace gangway::host
