// The control engine of ranks that share no memory (dual_engine.h). It sends values in host memory as
// messages between single ranks over one MPI communicator, with deadlines. Every message begins with a
// header, by which the engine detects collectives that differ between ranks. At a deadline it names the ranks
// that have sent nothing; a lost rank is found in this way, too. A call takes up to W messages per rank, so
// the engine is meant for small values.
//
// The engine writes to a caller's memory only after all messages of a call have arrived, so no peer writes to
// it after a call has failed.
//
// Thread rule: that of an Engine (gang/engine.h); MPI runs with MPI_THREAD_MULTIPLE.
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

namespace gangway::mpi {

std::shared_ptr<Engine> make_control_engine(const std::shared_ptr<Rank>& owner, const EngineOptions& options);

}  // namespace gangway::mpi
