// What one collective does on shared memory. Each is one file of algorithms/ and reads there from top to bottom; what
// all have in common is done around it (exchange.h): the call is published, a staged input is filled round by round, the
// members whose input is needed arrive and are compared, the end is announced.
//
// Thread rule: constants; their functions run under the core's mutex and never wait.
#pragma once

#include "gang/engine.h"
#include "gang/host/call/op.h"

namespace gangway::host {

constexpr size_t kStreamed = 16 << 20;  // bytes of an output from which on the caches would not keep it
constexpr size_t kMove = 1 << 20;       // bytes that one step moves, about

// One call and what it reaches.
struct Call {
  Team& team;
  Op& op;
  Traffic& traffic;

  int rank() const { return team.rank(); }
  int size() const { return team.size(); }
  Slot& slot(int r) const { return team.slot(op.channel, op.sequence, r); }
  ChannelLine& line(int r) const { return team.line(op.channel, r); }
  PairLine& pair_line() const { return *op.lane->line; }  // of a send or a receive
};

// Does this rank need the input of `peer`?
inline bool needs(const Call& call, int peer) {
  return peer != call.rank() &&
         (call.op.from == Peers::all || (call.op.from == Peers::root && call.op.c.peer == peer));
}

// Whose input goes to whom.
enum class Flow : uint8_t { everyone, to_root, from_root, to_peer, from_peer };

// How a staged input is cut into rounds.
enum class Cut : uint8_t {
  whole,      // chunk by chunk
  by_reader,  // each chunk holds a part for each reader
  but_own,    // chunk by chunk, without the part that this rank folds from the input itself
};

struct Algorithm {
  Flow flow = Flow::everyone;
  // The same where inputs ride in the flags: a rank that needs no input then waits for no peer.
  Flow flow_of_inlined = Flow::everyone;
  Cut cut = Cut::whole;  // of an input outside of the arena
  // What peers must know besides where the input lies; null: nothing.
  void (*publish)(Call& call, Slot& slot) = nullptr;
  // Once, when all needed inputs have arrived: chooses the path, sets the rounds of drain and collect. Null: there is
  // nothing to read.
  void (*plan)(Call& call) = nullptr;
  // One round, while some are left. False: a peer is not that far yet.
  bool (*step)(Call& call) = nullptr;
};

}  // namespace gangway::host
