// An engine of two planes. The data plane is an engine that may support device memory only, and that need not
// detect failures. The control plane is an engine of the same ranks over host memory, which detects
// mismatched calls, lost peers and missed deadlines.
//
// If the data engine does not detect failures, each call is first announced on the control engine, on the
// same channel, with a note: the call's arguments, its number, and a hash of all earlier calls. A wait checks
// the peers' notes first, so that it reports a wrong call or a dead peer before it waits for the device. A
// note of a send goes to the receiver only, as a message of the pair.
//
// A data engine that can abort calls in flight (EngineFacts::aborts_in_flight) gets calls at once, in the
// order of the program. Any other data engine gets a call only when all notes have arrived and agree, so it
// never holds a call that cannot end. In that case the calls of one channel, and the sends and receives of
// one pair, keep their order, whichever notes come first.
//
// The first collective of a channel waits until all ranks have made it, and then opens the channel of the
// data engine. So all ranks open their channels in the same order.
//
// Thread rule: that of an Engine (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

namespace gangway {

// Both engines have the same ranks in the same order. The result breaks, ends, splits and shrinks both of
// them.
std::shared_ptr<Engine> make_dual_engine(std::shared_ptr<Engine> data, std::shared_ptr<Engine> control,
                                         std::shared_ptr<Rank> owner, const EngineOptions& options);

}  // namespace gangway
