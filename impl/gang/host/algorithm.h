// What one collective does on shared memory. Each is one file of algorithms/ and reads there from top to bottom; what
// all have in common is done around it (exchange.h): the call is published, a staged input is filled round by round, the
// members whose input is needed arrive and are compared, the end is announced.
//
// Thread rule: constants; their functions run under the core's mutex and never wait.
#pragma once

#include "gang/engine.h"
#include "gang/host/op.h"

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
};

// Whose input goes to whom.
enum class Flow : uint8_t { everyone, to_root, from_root, to_peer, from_peer };

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

const Algorithm& algorithm_of(CollectiveOp op);

extern const Algorithm kBarrier, kAllReduce, kReduce, kReduceScatter, kAllGather, kGather, kBroadcast,
    kScatter, kAllToAll, kSend, kRecv;

// --- what algorithms are made of ---

// Bytes of each input that one step reads where they lie.
inline size_t move_chunk(int size) {
  return std::max(kChunk, kMove / static_cast<size_t>(size) / kLine * kLine);
}
// Does this rank need the input of `peer`?
inline bool needs(const Call& call, int peer) {
  return peer != call.rank() &&
         (call.op.from == Peers::all || (call.op.from == Peers::root && call.op.c.peer == peer));
}
// Where byte `in_first` of a peer's input lies, of the round that is next.
const unsigned char* source_of(const Call& call, int peer, size_t in_first);
// Has each chunk of the next round been put there by its owner? `bytes`: how many the peer has for this rank.
bool chunk_is_filled(const Call& call, int peer, size_t bytes);
void end_drain_round(Call& call);  // counts it; peers hear of all but the last, which ends the call

// Collectives that move bytes: a rank copies a piece of the input of each peer it needs.
// Bytes that `peer` has for this rank, where they begin in its input and in this rank's output.
struct Piece {
  size_t bytes = 0, in_first = 0, out_first = 0;
};
using PieceFrom = Piece (*)(const Call& call, int peer);
Piece piece(const Op& op, size_t in_first, size_t out_first, size_t count);  // of elements
void plan_moves(Call& call, PieceFrom piece_from);
bool step_moves(Call& call, PieceFrom piece_from);

}  // namespace gangway::host
