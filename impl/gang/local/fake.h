// The fake engine simulates a gang of any size in one rank. It can record each collective with its bytes, and
// how the caller waited for it.
//
// Thread rule: that of an Engine (gang/engine.h); recorded() from any thread.
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
  uint64_t bytes;  // the payload that this rank would have received
  // Whether a stream was ordered after the output, whether one was ordered after the last read of the input,
  // and whether the host itself waited.
  bool ordered = false, input_ordered = false, host_waited = false;
};

// What a recording fake engine has seen so far; empty for any other engine.
std::vector<RecordedCollective> recorded(const Engine& engine);

// Makes an engine without communication, which acts as if every rank held the caller's data. With `record` it
// keeps every collective for recorded(). Any rank and size, also on the meta device (which the public factory
// refuses).
std::shared_ptr<Engine> make_fake_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         bool record);

}  // namespace gangway
