// What the ranks of a pipeline really did, and when: computations, FSDP's collectives, sends, receives and waits. Times are
// the host's; on a device whose streams run later they are those of the launches.
//
// Thread rule: one thread at a time; gather_trace is collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tracer.h"
#include "gang/gang.h"
#include "parallel/pipeline/schedule.h"

namespace gangway {

struct TraceEvent {
  enum class Kind : uint8_t { work, wait, move };
  Kind kind = Kind::work;
  Action action;                     // stage -1: the end of a pass, where sends are waited for
  int64_t start_ns = 0, end_ns = 0;  // of the steady clock
};

class Trace {
 public:
  static int64_t now_ns() { return Tracer::now_ns(); }
  void add(TraceEvent::Kind kind, const Action& action, int64_t start_ns) {
    events_.push_back({kind, action, start_ns, now_ns()});
  }
  void clear() { events_.clear(); }
  const std::vector<TraceEvent>& events() const { return events_; }

 private:
  std::vector<TraceEvent> events_;
};

// For a rank's own trace.
void add(Tracer& tracer, const TraceEvent& event);

// The events of all ranks of `gang`, by rank, on rank 0's clock, from the first one on. Ranks of one host have one clock;
// between hosts its difference is taken from the quickest of several messages there and back.
std::vector<std::vector<TraceEvent>> gather_trace(Gang& gang, const Trace& trace);

// For chrome://tracing and ui.perfetto.dev: a process for each rank, in it a row each for what it computed, waited for,
// and moved.
std::string chrome_json(const std::vector<std::vector<TraceEvent>>& ranks);

}  // namespace gangway
