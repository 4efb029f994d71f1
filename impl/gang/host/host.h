// The host engine: ranks on one machine, as processes over one sealed shared memory or as threads over plain memory.
//
// Belongs here: the arena, the board (flags, sequences, errors), the algorithms on them, life threads and waiting. Does
// not: checks of what a caller passed (gang.cpp), rendezvous (store), choice of engine (registry.cpp, the only includer
// of this header).
//
// Its parts. Each knows what stands below it only:
//
//   host_engine    the Engine that a gang holds: its children, shared regions, the engine of survivors (survivors)
//   work, waiting  a thread waits for a call, a counter or the others' leave; ranks that wait for each other (cycle)
//   core           where a call enters: refused, started, or driven to its end at once; the mutex of what follows
//   failure        is the engine broken, why, and who is told (reasons has the words, awaited who is missing)
//   calls          the calls in flight, in the order of their queues (lanes); the ring of the last ones (flights)
//   exchange       one call on the board: published, staged (staging), met by its peers, ended
//   algorithms/    what one collective reads and writes in between; algorithm.h is what they are made of, and folding
//   team           one rank among the members: its lines on the board, telling the others
//   board          the engine's shared control memory: slots of calls, marks, the error (layout: shared.h)
//   member, life   a rank's presence on the host: sleeping and waking, who was lost
//   arena          the memory, a slice for each rank
//
// Beside these: bootstrap and handover, which make the first engine of a host.
#pragma once

#include <memory>
#include <vector>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"
#include "gang/rendezvous/store.h"

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
