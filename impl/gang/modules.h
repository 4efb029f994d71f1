// Modules that the core loads when it needs them, so that it does not depend on the libraries that they link.
//
// Thread rule: any thread. A module stays loaded.
#pragma once

#include <string>

#include "gang/mpi_module.h"

namespace gangway {

// The module of the MPI whose launcher started this process (else Open MPI's, then MPICH's), with MPI
// started. NOT_SUPPORTED, which says what is missing; INVALID_STATE, with both build ids, for a module of
// another build.
const MpiModule& mpi_module();

// One line for each module that this version knows: its file, or why it cannot be loaded. Starts nothing.
std::string describe_modules();

}  // namespace gangway
