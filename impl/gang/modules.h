// Modules that the core loads when it needs them, so that the core itself does not link their libraries.
//
// Thread rule: any thread. A module stays loaded.
#pragma once

#include <string>

#include "gang/mpi_module.h"

namespace gangway {

// Loads the module of the MPI whose launcher started this process (else Open MPI's, then MPICH's) and starts
// MPI. NOT_SUPPORTED: the text says what is missing. INVALID_STATE: the module is of another build; the text
// has both build ids.
const MpiModule& mpi_module();

// Returns one line for each module that this version knows: its file, or why it cannot be loaded. Does not
// start MPI.
std::string describe_modules();

}  // namespace gangway
