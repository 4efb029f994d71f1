// The fake engine's recording: each collective with its bytes, and how its caller went on after it.
// Thread rule: an Engine's (gang/engine.h); recorded() from any thread.
#pragma once

#include <memory>
#include <vector>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

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

// No communication: acts as if every rank held the caller's data. `record`: keeps every collective for
// recorded(). Any rank and size, also on meta (the public factory refuses meta, not this one).
std::shared_ptr<Engine> make_fake_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         bool record);

}  // namespace gangway
