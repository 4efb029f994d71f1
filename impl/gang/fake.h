// The fake engine's recording: each collective with its bytes, and how its caller went on after it.
// Thread rule: an Engine's (gang/engine.h); recorded() from any thread.
#pragma once

#include <vector>

#include "gang/engine.h"

namespace gangway {

struct RecordedCollective {
  Channel channel;
  CollectiveOp op;
  DType dtype;
  Reduce reduce;
  size_t count;
  uint64_t bytes;  // payload that this rank would have received
  // A stream was told to come after the output, after the last read of the input; the host itself waited.
  bool ordered = false, input_ordered = false, host_waited = false;
};

// What a recording fake engine has seen so far; empty for any other engine.
std::vector<RecordedCollective> recorded(const Engine& engine);

}  // namespace gangway
