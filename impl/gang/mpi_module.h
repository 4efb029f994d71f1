// The table that a loadable module for MPI gives the core. There is one module for each MPI that was found at
// build time. The core opens the one whose launcher started the process, compares build ids, and calls
// through this table. Core and module know each other's objects only by their abstract classes. A module has
// its own copies of the core's functions that it uses, so nothing in it may keep state for the core.
//
// Thread rule: any thread, once MPI runs.
#pragma once

#include <cstddef>
#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"

namespace gangway {

struct MpiModule {
  // The first member, so that it can be read in a module of any build; it must equal the core's.
  const char* build_id;

  // Starts MPI if it is not started. NOT_SUPPORTED if MPI has no thread support. MPI is ended at exit, if all
  // gangs over it were shut down in order.
  void (*start)();
  int (*rank)();
  int (*size)();
  // Collective over all ranks: returns whether they share a machine and its namespaces, so that they can
  // share memory. INVALID_STATE on every rank: they run different builds of the library.
  bool (*on_one_host)();
  // Collective over all ranks: an engine over the collectives of this MPI.
  std::shared_ptr<Engine> (*make_data)(const EngineOptions& options);
  // Collective over all ranks: puts the `bytes` bytes of every rank one after another into `all`. Ranks of
  // several hosts find each other by it, for a control engine of their own.
  void (*all_gather)(const void* mine, size_t bytes, void* all);
};

}  // namespace gangway

// The table. Its type is void, because base/loadable.h calls this function of any module.
extern "C" const void* gangway_mpi_module();
