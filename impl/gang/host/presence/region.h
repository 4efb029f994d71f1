// A shared region: memory to which every member of a board has a reference, called a hold. When the last hold
// ends, the region is freed. The living ranks end the holds of dead ranks. Until all members have taken their
// holds the board has one, too, so that if the engine breaks, a half-made region is freed with the board.
//
// Thread rule: each hold belongs to its owner; it may end on any thread.
#pragma once

#include <memory>

#include "gang/host/presence/board.h"

namespace gangway::host {

class RegionHold {
 public:
  // Rank 0 of the board calls this while no other region is being made. Returns the offset from which the
  // members take their holds. Error{out_of_memory}.
  static uint64_t make(const Member& member, const Board& board, size_t bytes);
  // The hold of the calling member. Each member takes its hold once.
  RegionHold(const Member& member, const Board& board, uint64_t made);
  ~RegionHold();
  RegionHold(const RegionHold&) = delete;
  RegionHold& operator=(const RegionHold&) = delete;

  uint64_t offset() const;
  // The board calls this when no member holds it any more.
  static void end_with_board(Arena& arena, BoardHeader& board) noexcept;

 private:
  const std::shared_ptr<Arena> arena_;
  const int rank_;
  const uint64_t made_;
};

}  // namespace gangway::host
