#include "gang/host/presence/team.h"

namespace gangway::host {

Team::Team(std::shared_ptr<Member> member, std::unique_ptr<Board> board, int rank, std::string label)
    : member_(std::move(member)),
      board_(std::move(board)),
      arena_(member_->arena()),
      rank_(rank),
      size_(board_->size()),
      label_(std::move(label)) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) others_.push_back(domain_rank(r));
    all_use_membarrier_ = all_use_membarrier_ && member_->uses_membarrier(domain_rank(r));
  }
  board_->attach(rank_);
}

void Team::wake_all() noexcept {
  announced_ = false;
  wake_peers();
  member_->wake(member_->rank());
}

uint64_t Team::block(uint64_t& offset, size_t bytes) const {
  if (offset == 0) {
    // The board uses the first line to link the block, and frees the block when no member can read it any
    // more.
    const uint64_t block = member_->slice()->allocate(kLine + bytes, true);
    board_->keep_block(member_->rank(), block, kLine + bytes);
    offset = block + kLine;
  }
  return offset;
}

std::string Team::name_of(int r) const { return name_on_board(*member_, *board_, r); }

std::string Team::ranks_text(const std::vector<int>& ranks) const { return host::ranks_text(*board_, ranks); }

std::string Team::alive_text(int departed) const {
  std::vector<int> alive;
  for (int r = 0; r < size_; ++r)
    if (r != departed && !loss(r)) alive.push_back(r);
  return ranks_text(alive) + (alive.size() == 1 ? " is alive" : " are alive");
}

Error Team::shaped(Error error, const char* op, int peer) const {
  error.gang = label_;
  error.op = op;
  error.rank = rank_;
  error.peer = peer;
  return error;
}

std::string name_on_board(const Member& member, const Board& board, int r) {
  const int there = board.member(r).domain_rank;
  return text("rank ", r, " (", board.renumbers() ? text("global rank ", there, ", ") : "", "host ",
              member.host(), ", pid ", member.arena().rank(there).pid.load(std::memory_order_relaxed), ")");
}

std::string ranks_text(const Board& board, const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string out = ranks.size() == 1 ? "" : "ranks ";
  const bool renumbers = board.renumbers();
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks.size() == 1) return board.rank_text(ranks[i]);
    out += text(i == 0 ? "" : ", ", ranks[i]);
    if (renumbers) out += text(" (global rank ", board.member(ranks[i]).domain_rank, ")");
  }
  return out;
}

}  // namespace gangway::host
