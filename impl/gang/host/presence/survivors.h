// How the ranks that survive a break agree on who they are, and meet on a new board.
//
// Each says which ranks it counts on. A rank that dies or leaves meanwhile is left out, so lists that differ only by such
// ranks agree. When all that live have said so, and what others were writing into their memory has ended, one of them
// makes a board and puts it at the end of a chain on the broken one, which decides: every rank takes the first board of
// the chain that it is in and has not taken. A rank that dies at any point leaves nothing half done: until its
// board is in the chain another rank may put one there; from then on it belongs to all.
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
  // `rank`: of the board, which is broken.
  Survivors(Member& member, Board& board, int rank, std::string label)
      : member_(member), board_(board), rank_(rank), label_(std::move(label)) {}

  struct Agreed {
    uint64_t place;          // in the chain
    uint64_t board;          // the new one
    std::vector<int> ranks;  // of the old one, in the new order
  };
  // The caller moves no bytes of this board any more. `asked`: ranks that include this one. Errors: TIMEOUT (a rank that
  // lives did not come, or did not end its write), MISMATCH (live ranks ask for others; told to all of them), ABORTED
  // (the others went on without this rank), the interrupt hook's. The call may be made again.
  Agreed meet(std::span<const int> asked, int64_t timeout_ms);
  // A board that its rank did not say it took is what the next call gives.
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

  bool absent(int r) const;  // for good
  std::vector<int> living(std::span<const int> list) const;
  std::vector<int> asked_by(int r) const;  // empty: it has not said
  Shrunk& shrunk(uint64_t place) const;
  std::atomic<uint64_t>& chain_after(int r) const;  // what r has taken
  uint64_t untaken(int r) const;                    // the first board of the chain for r; 0: none
  void wake_all() const noexcept;
  std::string name_of(int r) const;

  Member& member_;
  Board& board_;
  const int rank_;
  const std::string label_;
  uint64_t calls_ = 0;
};

}  // namespace gangway::host
