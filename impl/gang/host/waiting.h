// Something that a thread blocks for. waiting.cpp has the loop, cycle.cpp what it publishes about it.
#pragma once

#include <string>
#include <vector>

#include "gang/host/core.h"

namespace gangway::host {

class Core::Waitable {
 public:
  virtual ~Waitable() = default;
  virtual bool ready() = 0;  // drives; true also when it has failed
  virtual const HostWork* work() const { return nullptr; }
  virtual std::vector<int> missing() = 0;  // ranks of the engine that have not come
  virtual std::string what() = 0;          // "gang.all_reduce #3"
  virtual const char* op() const { return ""; }
  virtual bool whole() const { return true; }  // the loop itself looks for losses
  // A fence's counter, for the search of cycles.
  virtual uint64_t counter_offset() const { return 0; }
  virtual uint64_t counter_value() const { return 0; }
};

}  // namespace gangway::host
