// What a rank tells the others of a call before it starts, and what it makes of theirs (dual_engine.h).
// Thread rule: values of one thread.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gang/engine.h"

namespace gangway {

// One side of a call, or of all collectives of a launch: the first one's arguments, a hash of everything.
struct CallNote {
  uint64_t sequence = 0;  // on the channel, or of the pair
  uint64_t hash = 0;      // of these records and of all collectives before on the channel
  uint64_t count = 0;
  uint32_t dtype = 0;
  int32_t root = -1;
  uint16_t records = 0;
  CollectiveOp op = CollectiveOp::barrier;
  Reduce reduce = Reduce::none;
  uint32_t zero = 0;
};
static_assert(sizeof(CallNote) == 40);

// Numbers calls of one channel.
class CallCounter {
 public:
  CallNote note(std::span<const Collective> span, int size);  // of the collectives in it; records == 0: none
  CallNote pair_note(const Collective& c);                    // of one send or receive

 private:
  uint64_t sequence_ = 0, history_ = 0;
  std::map<std::pair<int, bool>, uint64_t> pairs_;  // by peer and sending
};

// The notes of one launch. Stays where it is while they travel.
class Announcement {
 public:
  Announcement(CallCounter& counter, std::span<const Collective> span, int rank, int size);
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

  std::span<const Collective> records() const { return records_; }  // for the control engine
  // Throws MISMATCH with both sides. All notes are here.
  void check(const std::string& label) const;
  // Must the data engine get `later` after this?
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
  std::vector<uint64_t> sent_, expected_, received_;  // of all_to_all with counts: each peer's part
  std::vector<Collective> records_;
};

}  // namespace gangway
