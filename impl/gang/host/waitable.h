// Something that a thread of a rank blocks on.
//
// Thread rule: values of the waiting thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gang/host/call/work.h"

namespace gangway::host {

class Waitable {
 public:
  virtual ~Waitable() = default;
  // Drives the calls up to `turns` times. Returns whether the wait is over, also if it has failed.
  virtual bool ready(int turns) = 0;
  virtual const HostWork* work() const { return nullptr; }
  virtual std::vector<int> missing() = 0;  // ranks of the engine that have not arrived
  virtual std::string what() = 0;          // "gang.all_reduce #3"
  virtual const char* op() const { return ""; }
  // For a wait for a counter in a shared region: the counter's offset and the awaited value. The search for
  // cycles reads them.
  virtual uint64_t counter_offset() const { return 0; }
  virtual uint64_t counter_value() const { return 0; }
};

}  // namespace gangway::host
