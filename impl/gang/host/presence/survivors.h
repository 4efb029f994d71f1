// The ranks that survive a broken engine agree on the list of survivors and on a new board.
//
// Each rank publishes the list of ranks that it asks for. A rank that dies or leaves meanwhile is dropped, so
// lists that differ only by such ranks agree. When all living ranks have published the same list, and no
// other rank still writes into their memory, one of them makes a board. It appends the board to a chain that
// begins on the broken board. The chain is the decision: every rank takes the first board of the chain that
// lists it and that it has not taken. A rank may die at any point without leaving the work half done: until
// its board is in the chain another rank may append one, and from then on the board belongs to all.
//
// Thread rule: one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/host/presence/board.h"

namespace gangway::host {

class Survivors {
 public:
  // `rank` is the rank on `board`, which is broken.
  Survivors(Member& member, Board& board, int rank, std::string label)
      : member_(member), board_(board), rank_(rank), label_(std::move(label)) {}

  struct Agreed {
    uint64_t place;          // in the chain
    uint64_t board;          // offset of the new board
    std::vector<int> ranks;  // ranks of the old board, in the new order
  };
  // Waits until the survivors have agreed. The caller must have no calls in flight on this board. `asked`
  // lists the ranks that it asks for, itself included. Errors: TIMEOUT if a living rank did not come or did
  // not finish a write; MISMATCH, on all of them, if living ranks ask for different ranks; ABORTED if the
  // others went on without this rank; what the interrupt hook throws. The call may be repeated.
  Agreed meet(std::span<const int> asked, int64_t timeout_ms);
  // Confirms that the caller uses the agreed board. Without that, the next meet() returns the same board
  // again.
  void took(const Agreed& agreed) noexcept;

 private:
  class Waiting;
  struct Look;

  void ask(std::span<const int> asked);
  bool over(Look& look);
  bool all_here(Look& look);
  bool left_alone(Look& look);
  void differ(Look& look, int other);
  void refuse(int other);
  [[noreturn]] void throw_mismatch(int asking, int other);
  void offer(const std::vector<int>& list);
  [[noreturn]] void throw_late(const Look& look, int64_t timeout_ms) const;

  bool absent(int r) const;  // whether the rank will not come any more
  std::vector<int> living(std::span<const int> list) const;
  std::vector<int> asked_by(int r) const;  // empty: the rank has not asked
  Shrunk& shrunk(uint64_t place) const;
  std::atomic<uint64_t>& chain_after(int r) const;  // the link after the last board that r took
  uint64_t untaken(int r) const;                    // the first board for r that it has not taken; 0: none
  void wake_all() const noexcept;
  std::string name_of(int r) const;

  Member& member_;
  Board& board_;
  const int rank_;
  const std::string label_;
  uint64_t calls_ = 0;
};

}  // namespace gangway::host
