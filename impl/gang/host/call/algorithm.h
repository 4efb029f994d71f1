// The part of one collective that differs from the others. Each collective is one file of algorithms/ that
// fills in an Algorithm. exchange.h does what all have in common: it publishes the call, stages the input
// round by round, waits for the members that the call needs, compares their calls, and announces the end.
//
// Thread rule: constants. Their functions run under the core's mutex and never wait.
#pragma once

#include "gang/engine.h"
#include "gang/host/call/op.h"

namespace gangway::host {

constexpr size_t kStreamed = 16 << 20;  // outputs from this many bytes on are too large to stay in the caches
constexpr size_t kMove = 1 << 20;       // about how many bytes one step moves

// One call, with the objects that its functions use.
struct Call {
  Team& team;
  Op& op;
  Traffic& traffic;

  int rank() const { return team.rank(); }
  int size() const { return team.size(); }
  Slot& slot(int r) const { return team.slot(op.channel, op.sequence, r); }
  ChannelLine& line(int r) const { return team.line(op.channel, r); }
  PairLine& pair_line() const { return *op.lane->line; }  // for a send or a receive
};

// Returns whether this rank needs the input of `peer`.
inline bool needs(const Call& call, int peer) {
  return peer != call.rank() &&
         (call.op.from == Peers::all || (call.op.from == Peers::root && call.op.c.peer == peer));
}

// Which members give their input to which.
enum class Flow : uint8_t { everyone, to_root, from_root, to_peer, from_peer };

// How a staged input is cut into rounds.
enum class Cut : uint8_t {
  whole,      // chunk by chunk
  by_reader,  // each chunk holds a part for each reader
  but_own,    // chunk by chunk, without the part that this rank folds straight from its input
};

struct Algorithm {
  Flow flow = Flow::everyone;
  // The same for inputs that are copied with the flag. A rank that needs no input then waits for no peer.
  Flow flow_of_inlined = Flow::everyone;
  Cut cut = Cut::whole;  // applies to an input outside of the arena
  bool only_moves =
      false;  // readers copy the input and compute nothing with it, so that the kernel can copy it
  // Publishes what peers must know besides the address of the input. Null: nothing.
  void (*publish)(Call& call, Slot& slot) = nullptr;
  // Runs once, when all needed inputs have arrived. It chooses the path, and sets the rounds of drain and
  // collect. Null: there is nothing to read.
  void (*plan)(Call& call) = nullptr;
  // Does one round if one is left. Returns false if a peer has not reached that round yet.
  bool (*step)(Call& call) = nullptr;
};

}  // namespace gangway::host
