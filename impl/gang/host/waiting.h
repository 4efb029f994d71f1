// Blocks a thread of a rank: it pauses a little, then gives the core away, then sleeps on the rank's bell. Every turn
// drives all outstanding calls of the rank; a clock is read only after the first phase.
//
// All throw the engine's error when it is broken, NOT_READY when their own deadline passes (harmless), and what the
// interrupt hook says; the gang's deadline is TIMEOUT and breaks the engine.
#pragma once

#include "gang/host/core.h"

namespace gangway::host {

// Returns when the work is in one of the states `want`, or the engine is broken.
void wait_for_work(Core& core, HostWork& work, uint32_t want, Deadline deadline);
// Until counter >= at_least, which rank `owner` publishes; `what` names the wait.
void wait_for_counter(Core& core, const std::atomic<uint64_t>& counter, uint64_t at_least, int owner,
                      const char* what);
void publish_counter(Core& core, std::atomic<uint64_t>& counter, uint64_t value);
// Until all ranks are in it; marks the leave. After `deadline`: TIMEOUT, which breaks the engine.
void shut_down(Core& core, Deadline deadline);

// Something that a thread blocks for.
class Waitable {
 public:
  virtual ~Waitable() = default;
  // Drives, looks up to `turns` times; true also when it has failed.
  virtual bool ready(int turns) = 0;
  virtual const HostWork* work() const { return nullptr; }
  virtual std::vector<int> missing() = 0;  // ranks of the engine that have not come
  virtual std::string what() = 0;          // "gang.all_reduce #3"
  virtual const char* op() const { return ""; }
  // A fence's counter, for the search of cycles.
  virtual uint64_t counter_offset() const { return 0; }
  virtual uint64_t counter_value() const { return 0; }
};

}  // namespace gangway::host
