// What a loadable module with an MPI gives the core. One module for each MPI found at build; the core opens the one whose
// launcher started the process, compares build ids, and calls through this table. Objects go both ways by their abstract
// classes. A module has copies of the functions that it uses, so nothing in it may keep state for the core.
// Thread rule: any thread, once MPI runs.
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"

namespace gangway {

struct MpiModule {
  const char* build_id;  // first, so that a stranger's is still read: the core's must be the same

  // Starts MPI if it is not started. NOT_SUPPORTED without threads. It is ended at exit, if all gangs over it ended in order.
  // `poll_interrupt`: the core's, whose hooks are of the core.
  void (*start)(void (*poll_interrupt)());
  int (*rank)();
  int (*size)();
  // Collective over all ranks: do they share a machine and its name spaces, so that they can share memory?
  bool (*on_one_host)();
  // Collective over all ranks. Data: collectives of this MPI. Control: messages with deadlines between single ranks, for
  // ranks that share no memory.
  std::shared_ptr<Engine> (*make_data)(const EngineOptions& options);
  std::shared_ptr<Engine> (*make_control)(const std::shared_ptr<Rank>& owner, const EngineOptions& options);
};

}  // namespace gangway

// The table. Untyped, as base/loadable.h calls the function of any module.
extern "C" const void* gangway_mpi_module();
