#include "gang/host/presence/region.h"

namespace gangway::host {
namespace {

// A bit for each rank of the domain.
class RankBits {
 public:
  void set(int r) { word(r).fetch_or(bit(r)); }
  bool test(int r) const { return (words_[static_cast<size_t>(r) / 64].load() & bit(r)) != 0; }
  // Returns true to exactly one caller.
  bool clear(int r) { return (word(r).fetch_and(~bit(r)) & bit(r)) != 0; }
  bool empty() const {
    for (const std::atomic<uint64_t>& w : words_)
      if (w.load() != 0) return false;
    return true;
  }

 private:
  static uint64_t bit(int r) { return uint64_t{1} << r % 64; }
  std::atomic<uint64_t>& word(int r) { return words_[static_cast<size_t>(r) / 64]; }
  std::atomic<uint64_t> words_[kMaxRanks / 64];
};

// The reference count of a region. It is stored behind the region's bytes, in zeroed memory.
struct alignas(kLine) Holders {
  uint64_t offset, bytes;  // of the whole block
  int32_t owner;
  // The number of references: one of each member and one of the board. Dropping the last one frees the
  // region.
  std::atomic<uint32_t> count;
  RankBits held, untaken;
};

Holders& holders(const Arena& arena, uint64_t made) { return *arena.at<Holders>(made); }

void end_holds(Arena& arena, Holders& all, uint32_t ended) {
  if (ended == 0 || all.count.fetch_sub(ended, std::memory_order_acq_rel) != ended) return;
  Slice::free_remote(arena, all.owner, all.offset, all.bytes);
}

}  // namespace

uint64_t RegionHold::make(const Member& member, const Board& board, size_t bytes) {
  Arena& arena = member.arena();
  const bool may_fit = bytes <= arena.header().slice_bytes;  // otherwise the sum below could wrap around
  const size_t behind = round_up(bytes, kLine);
  const size_t block = may_fit ? round_up(behind + sizeof(Holders), kPage) : bytes;
  const uint64_t offset = member.slice()->allocate(block, true);
  Holders& all = holders(arena, offset + behind);
  all.offset = offset;
  all.bytes = block;
  all.owner = member.rank();
  all.count.store(static_cast<uint32_t>(board.size()) + 1, std::memory_order_relaxed);
  for (int r = 0; r < board.size(); ++r) {
    all.held.set(board.member(r).domain_rank);
    all.untaken.set(board.member(r).domain_rank);
  }
  board.header().region.store(offset + behind);
  return offset + behind;
}

RegionHold::RegionHold(const Member& member, const Board& board, uint64_t made)
    : arena_(member.arena_ptr()), rank_(member.rank()), made_(made) {
  Holders& all = holders(*arena_, made);
  all.untaken.clear(rank_);
  if (all.untaken.empty() && board.header().region.exchange(0) != 0) end_holds(*arena_, all, 1);
}

RegionHold::~RegionHold() {
  if (arena_->forked()) return;
  Holders& all = holders(*arena_, made_);
  uint32_t ended = 0;  // each hold ends once: by its holder, or by another rank if the holder has died
  for (int r = 0; r < static_cast<int>(arena_->header().size); ++r)
    if ((r == rank_ || arena_->died(r)) && all.held.clear(r)) ++ended;
  end_holds(*arena_, all, ended);
}

uint64_t RegionHold::offset() const { return holders(*arena_, made_).offset; }

void RegionHold::end_with_board(Arena& arena, BoardHeader& board) noexcept {
  const uint64_t made = board.region.exchange(0);
  if (made == 0) return;
  Holders& all = holders(arena, made);
  uint32_t ended = 1;  // the hold of the board
  for (int r = 0; r < static_cast<int>(arena.header().size); ++r)
    if (all.untaken.test(r) && all.held.clear(r)) ++ended;
  end_holds(arena, all, ended);
}

}  // namespace gangway::host
