// A shared region: memory that every member of a board holds. The last hold that ends frees it; the dead
// never end theirs, so the living do. Until all members have taken theirs the board has one too, so
// that what a break leaves half made goes with the board.
//
// Thread rule: a hold is its owner's; holds end on any thread.
#pragma once

#include <memory>

#include "gang/host/presence/board.h"

namespace gangway::host {

class RegionHold {
 public:
  // By rank 0 of the board, which has no other region in the making. What the members take;
  // Error{out_of_memory}.
  static uint64_t make(const Member& member, const Board& board, size_t bytes);
  // Of the calling member: one, taken once.
  RegionHold(const Member& member, const Board& board, uint64_t made);
  ~RegionHold();
  RegionHold(const RegionHold&) = delete;
  RegionHold& operator=(const RegionHold&) = delete;

  uint64_t offset() const;
  // When no member holds the board any more.
  static void end_with_board(Arena& arena, BoardHeader& board) noexcept;

 private:
  const std::shared_ptr<Arena> arena_;
  const int rank_;
  const uint64_t made_;
};

}  // namespace gangway::host
