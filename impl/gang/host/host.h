// The host engine: ranks on one machine, as processes over one sealed shared memory or as threads over plain
// memory.
//
// Belongs here: the arena, the board (flags, sequences, errors), the algorithms on them, life threads and
// waiting. Does not: checks of what a caller passed (gang.cpp), rendezvous (store), choice of engine
// (registry.cpp, the only includer of this header).
#pragma once

#include <memory>
#include <vector>

#include "gang/engine.h"
#include "gang/rank.h"
#include "gang/registry.h"
#include "gang/store.h"

namespace gangway {

// Collective over the store: every rank of options.size calls it, each in its own process. NOT_SUPPORTED when
// a rank cannot map the memory of rank 0 (another host or network namespace).
std::shared_ptr<Engine> make_host_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         const std::shared_ptr<Store>& store);

// Local: engines of ranks that are threads of this process, one per element. options.rank and options.size
// are ignored.
std::vector<std::shared_ptr<Engine>> make_host_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                              const EngineOptions& options);

}  // namespace gangway
