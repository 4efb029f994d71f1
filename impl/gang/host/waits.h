// What the blocked threads of all ranks of the domain wait for, as they have published it (WaitRecord).
//
// Thread rule: values of one thread.
#pragma once

#include <array>
#include <bitset>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gang/host/presence/board.h"

namespace gangway::host {

using Ranks = std::bitset<kMaxRanks>;  // a set of ranks of the domain

// The call that a thread waits for, and the ranks of the domain that have not begun it.
struct Wait {
  uint64_t version = 0, board = 0, sequence = 0, count = 0, counter = 0;
  CollectiveOp op = CollectiveOp::barrier;
  Channel channel = Channel::user;
  DType dtype = DType::f32;
  int peer = -1;
  Ranks missing;
};

void write(WaitRecord& to, const Wait& wait);

struct Noticed : Wait {
  int place = 0;  // in the rank's table
};

// The boards that one search has met, each with the rank that every rank of the domain has on it, or -1.
class Boards {
 public:
  struct Members {
    std::unique_ptr<Board> board;
    std::array<int, kMaxRanks> rank_of;
  };
  explicit Boards(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}

  const Members* find(uint64_t offset);  // null: there is no board any more
  // Returns whether `missing` has still not begun the call that a thread of `waiter` is in.
  bool still_absent(const Wait& wait, int waiter, int missing);
  // Returns the name of a rank of the domain on the board of a wait, such as "rank 1 (global rank 3)".
  std::string rank_text(const Wait& wait, int rank);
  // Returns the call, such as "gang.all_reduce #3". describe() adds the rank and the arguments.
  std::string call_text(const Wait& wait) const;
  std::string describe(const Wait& wait, int rank);

 private:
  const std::shared_ptr<Arena> arena_;
  std::map<uint64_t, Members> known_;
};

// All waits of the domain at one moment, and the ranks that are stuck: each of their threads waits for a rank
// that is stuck as well.
class Waits {
 public:
  explicit Waits(std::shared_ptr<Arena> arena);

  struct Link {
    int rank;
    const Wait* wait;
  };
  // Returns a cycle of stuck ranks that begins and ends with the record at `place` of `start`, or an empty
  // list.
  std::vector<Link> ring(int start, int place) const;
  // Returns whether no record of the stuck ranks has changed since it was read.
  bool stand_still() const;
  const std::vector<Noticed>& of(int r) const { return ranks_[static_cast<size_t>(r)].waits; }
  Boards& boards() { return boards_; }

 private:
  struct RankWaits {
    uint32_t threads = 0;
    std::vector<Noticed> waits;
  };

  RankWaits look_at(int r) const;
  void drop_moving();
  void drop_arrived();
  bool follow(int start, int at, const Wait& wait, Ranks& seen, std::vector<Link>& links) const;

  const std::shared_ptr<Arena> arena_;
  Boards boards_;
  std::vector<RankWaits> ranks_;
  Ranks stuck_;
};

}  // namespace gangway::host
