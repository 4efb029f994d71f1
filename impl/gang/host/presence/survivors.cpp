#include "gang/host/presence/survivors.h"

#include <algorithm>

#include "base/interrupt.h"
#include "base/log.h"
#include "gang/host/presence/team.h"

namespace gangway::host {
namespace {

// How long two lists may differ before the call fails. A rank's death is not known everywhere at once, and a
// rank whose call has just failed because of a difference may ask again.
constexpr int64_t kDifferMs = 20, kDifferedMs = 80;
constexpr int64_t kTurnMs = 5;  // how long the first rank of the list has to make the board
constexpr int64_t kNapNs = 2'000'000;

std::vector<int> read(const RankList& list) {
  std::vector<int> ranks(std::min<size_t>(list.count.load(std::memory_order_relaxed), kMaxRanks));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = list.ranks[i].load(std::memory_order_relaxed);
  return ranks;
}

void write(RankList& list, std::span<const int> ranks) {
  for (size_t i = 0; i < ranks.size(); ++i)
    list.ranks[i].store(static_cast<uint16_t>(ranks[i]), std::memory_order_relaxed);
  list.count.store(static_cast<uint32_t>(ranks.size()), std::memory_order_relaxed);
}

bool holds(std::span<const int> list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

}  // namespace

// Marks this member as waiting in shrink, so that a peer with another list knows whom to notify.
class Survivors::Waiting {
 public:
  explicit Waiting(MemberLine& line) : line_(line) {
    line_.refused_by.store(0, std::memory_order_seq_cst);
    set(Asking::waits);
  }
  ~Waiting() {
    if (asking(line_) == Asking::waits) set(Asking::no);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  static Asking asking(const MemberLine& line) {
    return static_cast<Asking>(line.asking.load(std::memory_order_seq_cst));
  }
  void set(Asking now) { line_.asking.store(static_cast<uint32_t>(now), std::memory_order_seq_cst); }

 private:
  MemberLine& line_;
};

// The state of one wait, as of its last check.
struct Survivors::Look {
  std::span<const int> asked;
  std::vector<int> list;    // the asked ranks that live
  int missing = -1;         // a rank that has not asked yet
  int writing = -1;         // a rank that is left out and has not finished its write
  int64_t differs_ns = 0;   // since when a list differs; 0: none does
  int64_t all_here_ns = 0;  // since when the board could be made
  uint64_t place = 0;       // the result
};

Survivors::Agreed Survivors::meet(std::span<const int> asked, int64_t timeout_ms) {
  const Waiting waiting(board_.member(rank_));
  ask(asked);
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  Look look;
  look.asked = asked;
  for (;;) {
    const uint32_t doorbell = member_.own().doorbell.load(std::memory_order_seq_cst);
    if (over(look)) break;
    if (deadline.passed()) throw_late(look, timeout_ms);
    poll_interrupt();
    member_.own().sleeping.fetch_add(1, std::memory_order_seq_cst);
    member_.sleep(doorbell, kNapNs);
    member_.end_sleep();
  }
  const Shrunk& made = shrunk(look.place);
  Agreed agreed{look.place, made.board, read(made.members)};
  std::vector<int> gone;
  for (const int r : asked)
    if (!holds(agreed.ranks, r)) gone.push_back(r);
  if (!gone.empty())
    log(LogLevel::warning, text("rank ", rank_, ": ", label_, ".shrink: without ", ranks_text(board_, gone),
                                ", lost meanwhile; the new gang has ", agreed.ranks.size(), " ranks"));
  return agreed;
}

void Survivors::took(const Agreed& agreed) noexcept {
  MemberLine& mine = board_.member(rank_);
  // The list was for this board only: no other board with this rank is made before it asks again.
  mine.asked_version.store(0, std::memory_order_seq_cst);
  mine.shrunk.store(agreed.place, std::memory_order_seq_cst);
  wake_all();
}

void Survivors::ask(std::span<const int> asked) {
  MemberLine& mine = board_.member(rank_);
  mine.asked_version.store(2 * ++calls_ - 1, std::memory_order_seq_cst);
  write(mine.asked, asked);
  mine.asked_version.store(2 * calls_, std::memory_order_seq_cst);
  wake_all();
}

bool Survivors::over(Look& look) {
  look.place = untaken(rank_);
  if (look.place != 0) return true;
  if (const uint32_t by = board_.member(rank_).refused_by.load(std::memory_order_seq_cst); by != 0)
    throw_mismatch(static_cast<int>(by) - 1, rank_);
  look.list = living(look.asked);
  if (!all_here(look) || !left_alone(look)) return false;
  const int64_t now = now_ns();
  if (look.all_here_ns == 0) look.all_here_ns = now;
  // Any rank may make the board, but taking turns saves the others the memory.
  if (look.list[0] != rank_ && now - look.all_here_ns < kTurnMs * 1'000'000) return false;
  offer(look.list);
  look.place = untaken(rank_);
  return look.place != 0;
}

bool Survivors::all_here(Look& look) {
  // If a new board does not list this rank, the members of that board consider this rank lost.
  for (uint64_t at = chain_after(rank_).load(); at != 0; at = shrunk(at).next.load()) {
    const std::vector<int> theirs = read(shrunk(at).members);
    if (holds(theirs, rank_)) return false;  // the board has appeared since untaken() looked
    for (const int r : theirs)
      if (holds(look.list, r))
        fail(Code::aborted, label_, ".shrink: the other ranks went on without rank ", rank_);
  }
  look.missing = -1;
  for (const int r : look.list) {
    if (r == rank_) continue;
    const std::vector<int> theirs = asked_by(r);
    const bool same = !theirs.empty() && living(theirs) == look.list;
    if (same && untaken(r) == 0) continue;
    if (!theirs.empty() && !same && Waiting::asking(board_.member(r)) != Asking::no) {
      differ(look, r);
      return false;
    }
    if (look.missing < 0) look.missing = r;
  }
  look.differs_ns = 0;
  if (look.missing >= 0) look.all_here_ns = 0;
  return look.missing < 0;
}

void Survivors::differ(Look& look, int other) {
  look.missing = other;
  look.all_here_ns = 0;
  const int64_t now = now_ns();
  if (look.differs_ns == 0) look.differs_ns = now;
  const bool waits = Waiting::asking(board_.member(other)) == Asking::waits;
  if (now - look.differs_ns >= (waits ? kDifferMs : kDifferedMs) * 1'000'000) refuse(other);
}

void Survivors::refuse(int other) {
  for (int r = 0; r < board_.size(); ++r) {
    MemberLine& line = board_.member(r);
    if (r == rank_ || Waiting::asking(line) != Asking::waits) continue;
    if (r == other || holds(asked_by(r), rank_))
      line.refused_by.store(static_cast<uint32_t>(rank_) + 1, std::memory_order_seq_cst);
  }
  wake_all();
  throw_mismatch(rank_, other);
}

void Survivors::throw_mismatch(int asking, int other) {
  board_.member(rank_).asking.store(static_cast<uint32_t>(Asking::differed), std::memory_order_seq_cst);
  Error error(Code::mismatch,
              text(label_, ".shrink: ", board_.rank_text(asking), " asks for ",
                   ranks_text(board_, asked_by(asking)), ", but ", board_.rank_text(other), " for ",
                   ranks_text(board_, asked_by(other)), ": give all that live the same list"));
  error.peer = asking == rank_ ? other : asking;
  throw error;
}

// Returns whether no rank that was left out still writes into the survivors' memory. Such a rank may still
// live: it was stopped in the middle of a move, or does not know of the break yet. It begins no new write
// (refuse_when_closed), and a write in progress ends, at the latest with its process.
bool Survivors::left_alone(Look& look) {
  board_.header().closed.exchange(1, std::memory_order_seq_cst);
  Arena& arena = member_.arena();
  for (int r = 0; r < board_.size(); ++r) {
    const int there = board_.member(r).domain_rank;
    look.writing = r;
    if (!holds(look.list, r) && arena.rank(there).writing.load(std::memory_order_seq_cst) != 0 &&
        !arena.died(there))
      return false;
  }
  look.writing = -1;
  return true;
}

void Survivors::offer(const std::vector<int>& list) {
  std::vector<int> members;
  for (const int r : list) members.push_back(board_.member(r).domain_rank);
  Slice& slice = *member_.slice();
  const uint64_t board = Board::create(member_, members, label_);
  uint64_t block = 0;
  try {
    // The block is freed with the old board, which uses its first line to link it (Board::keep_block).
    block = slice.allocate(kLine + sizeof(Shrunk), true);
  } catch (...) {
    slice.free(board);
    throw;
  }
  Shrunk& mine = shrunk(block + kLine);
  mine.board = board;
  write(mine.members, list);
  std::atomic<uint64_t>* end = &chain_after(rank_);
  for (uint64_t at = 0; !end->compare_exchange_strong(at, block + kLine); at = 0) {
    const std::vector<int> theirs = read(shrunk(at).members);
    if (std::any_of(list.begin(), list.end(), [&](int r) { return holds(theirs, r); })) {
      slice.free(block);
      slice.free(board);
      return;
    }
    end = &shrunk(at).next;
  }
  board_.keep_block(member_.rank(), block, kLine + sizeof(Shrunk));
  wake_all();
}

void Survivors::throw_late(const Look& look, int64_t timeout_ms) const {
  if (look.missing < 0 && look.writing >= 0)
    fail(Code::timeout, label_, ".shrink: ", name_of(look.writing),
         " is left out, but it lives and did not end a write into the others' memory within ", timeout_ms,
         " ms");
  fail(Code::timeout, label_, ".shrink: ", board_.rank_text(look.missing), " did not come within ",
       timeout_ms, " ms");
}

bool Survivors::absent(int r) const {
  const bool shut_down =
      board_.member(r).mark.load(std::memory_order_seq_cst) == static_cast<uint32_t>(Mark::left);
  return shut_down || board_.has_left(r) || member_.loss(board_.member(r).domain_rank);
}

std::vector<int> Survivors::living(std::span<const int> list) const {
  std::vector<int> ranks;
  for (const int r : list)
    if (r == rank_ || !absent(r)) ranks.push_back(r);
  return ranks;
}

std::vector<int> Survivors::asked_by(int r) const {
  const MemberLine& line = board_.member(r);
  for (;;) {
    const uint64_t version = line.asked_version.load(std::memory_order_seq_cst);
    if (version % 2 != 0 || version == 0) return {};  // its writer may have died while writing
    std::vector<int> ranks = read(line.asked);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (line.asked_version.load(std::memory_order_seq_cst) == version) return ranks;
  }
}

Shrunk& Survivors::shrunk(uint64_t place) const { return *member_.arena().at<Shrunk>(place); }

std::atomic<uint64_t>& Survivors::chain_after(int r) const {
  const uint64_t taken = board_.member(r).shrunk.load(std::memory_order_seq_cst);
  return taken == 0 ? board_.header().shrunk : shrunk(taken).next;
}

uint64_t Survivors::untaken(int r) const {
  for (uint64_t at = chain_after(r).load(); at != 0; at = shrunk(at).next.load())
    if (holds(read(shrunk(at).members), r)) return at;
  return 0;
}

void Survivors::wake_all() const noexcept {
  for (int r = 0; r < board_.size(); ++r) member_.wake(board_.member(r).domain_rank);
}

std::string Survivors::name_of(int r) const { return name_on_board(member_, board_, r); }

}  // namespace gangway::host
