// The trace of a pass: when a rank's computations, FSDP collectives, sends, receives and waits ran. The times
// are those of the host; on a device with asynchronous streams they are the times of the launches. A rank's
// trace file has them in its row `pipeline` (base/tracer.h); tools/trace_files.h reads them.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>

#include "base/tracer.h"
#include "parallel/pipeline/schedule.h"

namespace gangway {

struct TraceEvent {
  enum class Kind : uint8_t { work, wait, move };
  Kind kind = Kind::work;
  // stage -1: the end of a pass, where the rank waits for its sends.
  Action action;
  int64_t start_ns = 0, end_ns = 0;  // of the steady clock
};

// Adds the event to the trace file of the rank.
void add(Tracer& tracer, const TraceEvent& event);

}  // namespace gangway
