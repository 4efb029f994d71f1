// Values of the host between ranks that share no memory: messages of single ranks over one MPI communicator, with
// deadlines. It names calls that differ, by a head on every message, and ranks that do not come; a rank that is gone is
// one that does not come. Small values, W messages a rank and call.
//
// Nothing is received into a caller's memory before the message is here, so a call that fails leaves nothing behind.
//
// Thread rule: an Engine's (gang/engine.h); MPI runs with MPI_THREAD_MULTIPLE.
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

namespace gangway::mpi {

std::shared_ptr<Engine> make_control_engine(const std::shared_ptr<Rank>& owner, const EngineOptions& options);

}  // namespace gangway::mpi
