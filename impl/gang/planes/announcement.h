// Before a call starts, each rank sends its arguments to the others and compares them with theirs
// (dual_engine.h).
//
// Thread rule: values of one thread.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gang/engine.h"
#include "gang/engine_options.h"

namespace gangway {

// One rank's description of a call, or of all collectives of one launch: the arguments of the first one, and
// a hash of all.
struct CallNote {
  uint64_t sequence = 0;  // number on the channel, or of the pair
  uint64_t hash = 0;      // a hash of these records and of all earlier collectives on the channel
  uint64_t count = 0;
  uint32_t dtype = 0;
  int32_t root = -1;
  uint16_t records = 0;
  CollectiveOp op = CollectiveOp::barrier;
  Reduce reduce = Reduce::none;
  uint32_t zero = 0;
};
static_assert(sizeof(CallNote) == 40);

// Numbers the calls of one channel.
class CallCounter {
 public:
  // Returns the note for the collectives in `span`. Its `records` is 0 if there are none.
  CallNote note(std::span<const Collective> span, int size);
  CallNote pair_note(const Collective& c);  // returns the note for one send or receive

 private:
  uint64_t sequence_ = 0, history_ = 0;
  std::map<std::pair<int, bool>, uint64_t> pairs_;  // by peer and direction
};

// The notes of one launch. The object does not move, because the control engine reads and writes its notes in
// place.
class Announcement {
 public:
  Announcement(CallCounter& counter, std::span<const Collective> span, int rank, int size);
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

  // The sends and receives that the control engine has to run.
  std::span<const Collective> records() const { return records_; }
  // Compares the notes after all have arrived. Throws MISMATCH with the arguments of both ranks.
  void check(const EngineOptions& gang) const;
  // Returns whether the data engine must get `later` after this launch.
  bool precedes(const Announcement& later) const;

 private:
  struct Pair {
    CallNote mine, other;
    int peer;
    bool sends;
  };
  void add_counts(const Collective& c);

  const int rank_, size_;
  CallNote mine_;
  std::vector<CallNote> others_;  // by rank
  std::vector<Pair> pairs_;
  std::vector<uint64_t> sent_, expected_, received_;  // for all_to_all with counts: the part of each peer
  std::vector<Collective> records_;
};

}  // namespace gangway
