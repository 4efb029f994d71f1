// Modules that the core loads when it needs them, so that it needs none of what they link.
// Thread rule: any thread. A module stays loaded.
#pragma once

#include <string>

#include "gang/mpi_module.h"

namespace gangway {

// The module of the MPI whose launcher started this process (else Open MPI's, then MPICH's), with MPI started.
// NOT_SUPPORTED with what is missing; INVALID_STATE for a module of another build, with both ids.
const MpiModule& mpi_module();

// One line on each module that this version knows: its file, or why it cannot be loaded. Starts nothing.
std::string describe_modules();

}  // namespace gangway
