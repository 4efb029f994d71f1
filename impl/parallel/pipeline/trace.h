// What a rank of a pipeline really did, and when: computations, FSDP's collectives, sends, receives and waits. Times are the
// host's; on a device whose streams run later they are those of the launches. A rank's trace file has them in its row
// `pipeline` (base/tracer.h); tools/trace_files.h reads them again.
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
  Action action;                     // stage -1: the end of a pass, where sends are waited for
  int64_t start_ns = 0, end_ns = 0;  // of the steady clock
};

// Into the rank's file.
void add(Tracer& tracer, const TraceEvent& event);

}  // namespace gangway
