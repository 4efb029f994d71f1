// One call of this rank that has begun (Op), the queue that it stands in (Lane), and how a call's elements
// are divided among the ranks. These are values and pure functions; Calls owns the values.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gang/host/presence/team.h"

namespace gangway::host {

class HostWork;
struct Algorithm;
struct Lane;

// A set of other members: those whose input a rank needs, or those that need its own.
enum class Peers : uint8_t { none, root, all };

// How many steps of one kind a call takes, and how many are done.
struct Rounds {
  uint64_t all = 0, done = 0;
  bool over() const { return done == all; }
};

// The fields that change while a call is in flight. They are all zero at its start. They are in two structs,
// because each can then be reset by a few stores.
struct OpProgress {
  struct Op* next = nullptr;  // the next call in the lane
  HostWork* work = nullptr;
  uint64_t flight = 0;      // its number in the flight recorder, valid once `noted` is set
  uint64_t in_offset = 0;   // set when the input lies in the arena
  uint64_t out_offset = 0;  // the same for the output of a reduction
  Source source = Source::none;

  bool noted = false;
  bool published = false;          // the peers can see the call on the board
  bool planned = false;            // all needed members have arrived, and the algorithm has chosen its path
  bool in_place_on_peers = false;  // the path "in place": ranks write directly into each other's outputs
  bool fold_rounds = false;        // the path "rounds": each rank folds a part of every chunk
  bool streams = false;            // the output is written past the caches
  bool done = false;               // the call reads and writes no peer's memory any more
  bool output_ready = false, input_free = false;
  int arrived = 0;   // members [0, arrived) whose input this rank needs have begun the call
  int met = 0;       // members [0, met) have begun this call, not another one
  int finished = 0;  // members [0, finished) are done with it
};

struct OpRounds {
  size_t chunk = 0;          // bytes of one staged round
  uint64_t first_stage = 0;  // index of the call's first chunk in the ring
  size_t drain_chunk = 0;    // bytes of each input that one step reads
  Rounds fill;               // of this rank's own input, into the staging area
  Rounds drain;              // of the peers' inputs
  Rounds collect;            // of results that peers have folded
};

struct Op : OpProgress, OpRounds {
  Collective c;
  std::vector<size_t> counts;  // a copy of c.counts
  const Algorithm* algorithm = nullptr;
  Lane* lane = nullptr;
  Channel channel = Channel::user;
  Peers from = Peers::none;  // the members whose input this rank needs
  Peers to = Peers::none;    // the members that need this rank's input
  size_t item = 1;
  size_t in_bytes = 0;
  uint64_t sequence = 0;  // number on the channel, or of the ordered pair
  uint64_t fingerprint = 0;
};

// The memory that a lane has in the arena beside its slots.
struct Staging {
  uint64_t chunks = 0;       // offset of kStages chunks, and of as many folded results
  uint64_t small = 0;        // offset of kSmall bytes for each slot
  uint64_t tables = 0;       // offset of size + 1 words for each slot
  uint64_t taken_until = 0;  // peers may still read chunks of calls before this one
  uint64_t next_stage = 0;   // where the next call begins in the ring
};

// A queue of calls that run in order: those of one channel, or one direction of one pair of ranks on a
// channel.
struct Lane {
  Op* head = nullptr;
  Op* tail = nullptr;
  uint64_t sequence = 0;  // of the next call
  uint64_t history = 0;   // a hash of all calls so far
  uint64_t reusable = 0;  // slots of calls before this one may be written again
  Staging staging;
  Channel channel = Channel::user;
  int peer = -1;             // the other rank of a pair; -1: the lane is a channel's
  PairLine* line = nullptr;  // the line of the pair
  bool sending = false;
  bool active = false;  // the lane is on the list of lanes with calls
  bool pair() const { return peer >= 0; }
};

inline Slot& slot_of(const Team& team, const Op& op, int r) { return team.slot(op.channel, op.sequence, r); }

// The elements of one part of a packed array.
struct Part {
  size_t first = 0, count = 0;
};
Part part_of(const Op& op, int j);                           // j-th part by counts[0, size)
Part received_part(const Op& op, int j, int size);           // of all_to_all, by counts[size, 2 size)
Part even_part(size_t count, size_t item, int j, int size);  // an even division, in whole cache lines

inline uint64_t rounds_of(size_t bytes, size_t chunk) { return (bytes + chunk - 1) / chunk; }

}  // namespace gangway::host
