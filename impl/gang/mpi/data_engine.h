// Collectives of one MPI, on a communicator for each channel. Facts: it folds in an order of MPI's, notices no failure
// and cannot abort a call in flight; mean, accumulation and 16-bit floats are lowered.
//
// After a failure in the middle of a call MPI may still write to that call's output, as nothing can take a collective
// back: the memory must outlive the process's other calls to MPI.
//
// Thread rule: an Engine's (gang/engine.h); MPI runs with MPI_THREAD_MULTIPLE.
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"

namespace gangway::mpi {

std::shared_ptr<Engine> make_data_engine(const EngineOptions& options);

}  // namespace gangway::mpi
