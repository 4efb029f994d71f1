// The host engine: ranks on one machine, as processes over one sealed shared memory or as threads over plain memory.
//
// Belongs here: the arena, the board (flags, sequences, errors), the algorithms on them, watchdog threads and waiting. Does
// not: checks of what a caller passed (gang_check.cpp), rendezvous (rendezvous/), the choice of an engine (registry.cpp, the
// only includer of this header).
//
// Its parts, from the top down. Each knows what stands below it only:
//
//   host_engine    the Engine that a gang holds: its children, shared regions, the engine of survivors; bootstrap makes
//                  the first engine of a host
//   waiting        blocks a thread until a call, a counter or the others' leave; cycle finds ranks that wait for each other
//   core           where a call enters: refused, started, or driven to its end at once; the mutex of what follows
//   failure        whether the engine is broken, why, and who is told
//   calls          the calls in flight, in the order of their queues
//   algorithms/    what one collective reads and writes, one file each; table has all, and they are made of rounds, moves
//                  and folding
//   call/          one call: published, staged, met by its peers and ended (exchange; pair for sends and receives), the
//                  queue that it stands in (lanes), the ring of the last calls (flights), the work that its caller holds,
//                  whom it waits for (awaited) and why it cannot go on (reasons); algorithm.h says what a collective fills in
//   presence/      who is there: a rank's sleeping, waking and death (member, life, thread_exit), the engine's shared control
//                  memory (board, region), one rank among the members (team), the survivors of a break, and the handover of
//                  the arena when processes meet
//   memory/        the arena, a slice for each rank; shared.h lays out what lies in it
//   kernels/       the arithmetic of reductions, and copies
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
