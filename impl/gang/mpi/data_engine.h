// The data engine that runs MPI's own collectives, on one communicator per channel. MPI chooses the order
// of its sums (but split_all_reduce.h), it detects no failures, and it cannot abort a call in flight. The
// caller lowers mean, accumulation and 16-bit floats.
//
// After a failure in the middle of a call MPI may still write to the output of that call, because no
// collective can be cancelled. The memory must therefore live until the process makes no more calls to MPI.
//
// Only non-blocking collectives are used, because nothing could end a blocking one at the deadline or for a
// lost peer. They move only while they are polled (EngineFacts::moves_when_polled).
//
// Thread rule: that of an Engine (gang/engine.h); MPI runs with MPI_THREAD_MULTIPLE.
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"

namespace gangway::mpi {

std::shared_ptr<Engine> make_data_engine(const EngineOptions& options);

}  // namespace gangway::mpi
