// One rank among the members of an engine: its number, the lines of each member on the board, and the ways to
// notify the others. The parts of a Core share it; it does not know them.
//
// Thread rule: getters from any thread; announce() and wake_announced() under the core's mutex.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gang/host/presence/board.h"
#include "gang/host/presence/member.h"

namespace gangway::host {

class Team {
 public:
  Team(std::shared_ptr<Member> member, std::unique_ptr<Board> board, int rank, std::string label);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& label() const { return label_; }
  Member& member() const { return *member_; }
  const std::shared_ptr<Member>& member_ptr() const { return member_; }
  Board& board() const { return *board_; }
  Arena& arena() const { return arena_; }
  ChannelLine& line(Channel channel, int r) const { return board_->channel(channel, r); }
  Slot& slot(Channel channel, uint64_t sequence, int r) const {
    return line(channel, r).slots[sequence % kSlots];
  }
  int domain_rank(int r) const { return board_->member(r).domain_rank; }
  std::optional<Loss> loss(int r) const { return member_->loss(domain_rank(r)); }

  // Stores with release order a value that peers may wait for. wake_announced() must follow. No memory fence
  // is needed where all sleepers call membarrier. Otherwise the exchange acts as a fence: the store must be
  // visible before this rank looks whether the peer sleeps.
  void announce(std::atomic<uint64_t>& flag, uint64_t value) {
    if (all_use_membarrier_) {
      flag.store(value, std::memory_order_release);
    } else {
      flag.exchange(value, std::memory_order_seq_cst);
    }
    announced_ = true;
  }
  void wake_announced() {
    if (!announced_) return;
    announced_ = false;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    wake_peers();
  }
  void wake_peers() const noexcept {
    for (const int r : others_) member_->wake(r);
  }
  void wake_all() noexcept;  // wakes the peers and the sleeping threads of this rank

  // A block of this rank's slice that peers read. It is allocated when `offset` is 0, and freed with the
  // board.
  uint64_t block(uint64_t& offset, size_t bytes) const;

  // How texts name ranks: in a sub-gang with their global ranks (Board::rank_text).
  std::string rank_text(int r) const { return board_->rank_text(r); }
  std::string ranks_text(const std::vector<int>& ranks) const;  // "rank 2", "ranks 0, 1, 3", "no rank"
  std::string name_of(int r) const;                             // "rank 2 (host node-b, pid 4711)"
  std::string alive_text(int departed) const;
  Error shaped(Error error, const char* op, int peer) const;  // fills in the gang, op, rank and peer

 private:
  const std::shared_ptr<Member> member_;
  const std::unique_ptr<Board> board_;
  Arena& arena_;
  const int rank_;
  const int size_;
  const std::string label_;
  std::vector<int> others_;         // the other members, as ranks of the domain
  bool all_use_membarrier_ = true;  // all members take part in membarrier
  bool announced_ = false;
};

std::string name_on_board(const Member& member, const Board& board, int r);  // as Team::name_of
std::string ranks_text(const Board& board, const std::vector<int>& ranks);   // as Team::ranks_text

}  // namespace gangway::host
