// MPI in this process: starts and ends it, turns its errors into Errors, and makes communicators.
//
// Thread rule: any thread.
#pragma once

#include <mpi.h>

#include <span>

#include "base/error.h"

namespace gangway::mpi {

void start();
void began_root();  // counts a root gang over this MPI
// Counts a root gang as ended. `in_order`: it was shut down, otherwise it was destroyed without a shutdown.
// At exit MPI is finalized only if all root gangs were shut down.
void ended_root(bool in_order);

// Throws Error{gang} with MPI's text unless `answer` is MPI_SUCCESS.
void check(int answer, const char* call);

// Makes a communicator of `ranks`. Collective over these ranks only. MPI waits for them without a deadline,
// so the caller makes sure that all of them make the call. `tag` separates calls that run at the same time.
// copy_of does the same for all ranks.
MPI_Comm subset(MPI_Comm comm, std::span<const int> ranks, int tag);
MPI_Comm copy_of(MPI_Comm comm, int tag);

}  // namespace gangway::mpi
