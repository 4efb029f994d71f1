// An engine of two planes: data, by an engine that may move device memory only and need not notice what goes wrong; and
// control, by an engine of the same ranks over host memory that does (mismatches, lost peers, deadlines).
//
// Where the data engine does not detect failures, each call is announced on the control engine first, on the same
// channel: a note of what is called, its number and a hash of all calls before. A wait looks at the peers' notes first,
// so a wrong call or a dead peer is named before anybody waits for a device. Notes of sends go to the receiver alone, as
// messages of the pair.
//
// A data engine that can abort calls in flight (EngineFacts::aborts_in_flight) gets them at once, in the order of the
// program. Another one gets a call when all notes are here and say the same, so that it never holds a call that cannot
// end; calls of one channel, and sends and receives of one pair, never pass each other then, whichever of their notes
// comes first.
//
// The first collective of a channel waits until all ranks have come to it and opens the channel of the data engine, so
// ranks use their channels for the first time in the same order.
//
// Thread rule: an Engine's (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

namespace gangway {

// Both have the same ranks in the same order. Breaks, ends, splits and shrinks both.
std::shared_ptr<Engine> make_dual_engine(std::shared_ptr<Engine> data, std::shared_ptr<Engine> control,
                                         std::shared_ptr<Rank> owner, const EngineOptions& options);

}  // namespace gangway
