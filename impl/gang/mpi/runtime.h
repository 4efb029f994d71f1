// One process's MPI: its start and end, its errors as ours, communicators.
// Thread rule: any thread.
#pragma once

#include <mpi.h>

#include <span>

#include "base/error.h"

namespace gangway::mpi {

void start(void (*poll_interrupt)());
void poll_core_interrupt();      // the caller's hook
void began_root();               // a root gang over this MPI
void ended_root(bool in_order);  // one is gone; MPI is finalized at exit only if all ended in order

// Throws Error{gang} with MPI's own words.
void check(int answer, const char* call);

// Collective over `ranks` alone, who are all here. `tag` tells calls at one time apart.
MPI_Comm subset(MPI_Comm comm, std::span<const int> ranks, int tag);
MPI_Comm copy_of(MPI_Comm comm, int tag);

}  // namespace gangway::mpi
