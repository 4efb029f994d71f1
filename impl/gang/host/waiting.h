// A core that can block a thread of its rank: the thread pauses a little, then gives the core away, then sleeps on the
// rank's doorbell. Every turn drives all outstanding calls of the rank; a clock is read only after the first phase.
//
// All waits throw the engine's error when it is broken, NOT_READY when their own deadline passes (harmless), and what the
// interrupt hook says; the gang's deadline is TIMEOUT and breaks the engine.
//
// Thread rule: any thread of the rank.
#pragma once

#include "gang/host/core.h"

namespace gangway::host {

class BlockingCore final : public Core {
 public:
  using Core::Core;

  void wait(HostWork& work, uint32_t states, Deadline deadline) override;  // Driver
  // Until counter >= at_least, which rank `owner` publishes; `what` names the wait.
  void wait_for_counter(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner, const char* what);
  void publish_counter(std::atomic<uint64_t>& counter, uint64_t value);
  // Until all ranks are in it; marks the leave. After `deadline`: TIMEOUT, which breaks the engine.
  void shut_down(Deadline deadline);
};

}  // namespace gangway::host
