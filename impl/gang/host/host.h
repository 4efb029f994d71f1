// The host engine: ranks on one machine, as processes over one sealed shared memory, or as threads over plain
// memory.
//
// Belongs here: the arena, the board (flags, sequences, errors), the algorithms on them, watchdog threads,
// and waiting. Does not belong here: checks of what a caller passed (gang_check.cpp), rendezvous
// (rendezvous/), and the choice of an engine (registry.cpp, which alone includes this header).
//
// Its parts, from the top down. Each knows only what stands below it:
//
//   host_engine    the Engine that a gang holds, with its children, shared regions, and the engine of
//   survivors;
//                  bootstrap makes the first engine of a host
//   waiting        blocks a thread until a call ends, a counter is published, or the others shut down;
//                  cycle detects ranks that wait for each other
//   core           the entry of all calls: it refuses, starts or completes them; it has the mutex of the
//   parts
//                  below
//   failure        whether the engine is broken, why, and which ranks are told
//   calls          the calls in flight, in the order of their lanes
//   algorithms/    what one collective reads and writes, one file for each; table lists them; rounds, moves
//   and
//                  folding are what they are made of
//   call/          one call: published, staged, met by its peers and ended (exchange; pair for sends and
//                  receives), the queue that it is in (lanes), the record of the last calls
//                  (flight_recorder), the work that its caller holds, which ranks it waits for (awaited), and
//                  why it fails (reasons); algorithm.h is the table row that a collective fills in
//   presence/      which ranks are present: sleep, wake-up and loss of a rank (member, watchdog,
//   thread_exit), the
//                  engine's shared control memory (board, region), one rank among the members (team), the
//                  survivors of a break, and the handover of the arena to other processes
//   memory/        the arena, one slice for each rank; shared.h lays out what lies in it
//
// The arithmetic of reductions, and copies, are in gang/kernels/, which other engines use too.
//
// Thread rule: any thread; each engine has an Engine's rule (gang/engine.h).
#pragma once

#include <memory>
#include <vector>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"
#include "gang/rendezvous/store.h"

namespace gangway {

// Collective over the store: each of options.size processes calls it. NOT_SUPPORTED when a rank cannot map
// the memory of rank 0, because it is on another host or in another network namespace.
std::shared_ptr<Engine> make_host_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         const std::shared_ptr<Store>& store);

// Local: makes the engines of ranks that are threads of this process, one for each element. It ignores
// options.rank and options.size.
std::vector<std::shared_ptr<Engine>> make_host_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                              const EngineOptions& options);

}  // namespace gangway
