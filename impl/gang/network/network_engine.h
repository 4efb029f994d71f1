// The engine of ranks on several hosts: an authenticated control connection for each pair of ranks, and a
// data connection for each pair that exchanges more than notes. Between ranks of one host data goes through
// shared memory.
//
// Its parts, from the top down. Each knows only what stands below it:
//
//   network_engine   the Engine that a gang holds
//   mesh, places     the start: who is where, and the connections between all
//   connector        data connections, which open later; door, dial: their two ends; contacts: what both know
//   host_memory      the memory that the ranks of one host share, an arena of the host engine
//   network          all connections of a rank, their thread, the calls of its gangs and how these end
//   link             the two connections to one peer; memory_wire: the rings in shared memory
//   plan             a collective as pieces that go from rank to rank, and its arithmetic
//   group, transfer  a gang and a call as the network sees them
//   control_frames   frames with a MAC; sockets: TCP
//
// A note grants room: a rank sends bytes of a call only when the receiver has begun that call, so that no
// call of one gang ever stands in the way of another.
//
// Thread rule: that of an Engine (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/engine_options.h"
#include "gang/rank.h"
#include "gang/rendezvous/store.h"

namespace gangway {

// Makes the engine of ranks that share a host. Null: there is none, and the network is used on one host, too.
using OneHostEngine = std::shared_ptr<Engine> (*)(const std::shared_ptr<Rank>& rank,
                                                  const EngineOptions& options,
                                                  const std::shared_ptr<Store>& store);

// Collective over the store. If all ranks turn out to be on one host, returns `one_host`'s engine.
// INVALID_STATE: ranks run different builds. INVALID_ARGUMENT: a host has only a loopback address.
std::shared_ptr<Engine> make_network_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                            const std::shared_ptr<Store>& store, OneHostEngine one_host);

// The same for ranks that a launcher has connected: they find each other by its exchange of bytes.
std::shared_ptr<Engine> make_network_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                            void (*gather)(const void* mine, size_t bytes, void* all));

}  // namespace gangway
