#include "gang/host/cycle.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "gang/host/call/awaited.h"

namespace gangway::host {
namespace {

// Returns the rank that a domain rank has in the engine of a board, or -1 if it is no member.
int member_of(const Board& board, int domain_rank) {
  for (int r = 0; r < board.size(); ++r)
    if (board.member(r).domain_rank == domain_rank) return r;
  return -1;
}

// The call that a thread waits for, and the ranks of the domain that have not begun it.
struct Wait {
  uint64_t version = 0, board = 0, sequence = 0, count = 0, counter = 0;
  CollectiveOp op = CollectiveOp::barrier;
  Channel channel = Channel::user;
  DType dtype = DType::f32;
  int peer = -1;
  std::vector<int> missing;
};

void write(WaitRecord& to, const Wait& wait) {
  const uint64_t version = to.version.load(std::memory_order_relaxed) | 1;
  to.version.store(version + 1, std::memory_order_seq_cst);  // even: the record is being written
  to.board.store(wait.board, std::memory_order_release);
  to.sequence.store(wait.sequence, std::memory_order_release);
  to.count.store(wait.count, std::memory_order_release);
  to.counter.store(wait.counter, std::memory_order_release);
  to.op.store(static_cast<uint32_t>(wait.op), std::memory_order_release);
  to.channel.store(static_cast<uint32_t>(wait.channel), std::memory_order_release);
  to.dtype.store(static_cast<int32_t>(wait.dtype), std::memory_order_release);
  to.peer.store(wait.peer, std::memory_order_release);
  for (auto& word : to.missing) word.store(0, std::memory_order_release);
  for (const int r : wait.missing)
    to.missing[r / 64].fetch_or(uint64_t{1} << (r % 64), std::memory_order_release);
  to.version.store(version + 2, std::memory_order_seq_cst);
}

// Returns nothing if no thread waits there, or if the record changed while it was read.
std::optional<Wait> read(const WaitRecord& from, int ranks) {
  Wait w;
  w.version = from.version.load(std::memory_order_acquire);
  if ((w.version & 1) == 0) return std::nullopt;
  w.board = from.board.load(std::memory_order_acquire);
  w.sequence = from.sequence.load(std::memory_order_acquire);
  w.count = from.count.load(std::memory_order_acquire);
  w.counter = from.counter.load(std::memory_order_acquire);
  w.op = static_cast<CollectiveOp>(from.op.load(std::memory_order_acquire));
  w.channel = static_cast<Channel>(from.channel.load(std::memory_order_acquire));
  w.dtype = static_cast<DType>(from.dtype.load(std::memory_order_acquire));
  w.peer = from.peer.load(std::memory_order_acquire);
  for (int r = 0; r < ranks; ++r)
    if ((from.missing[r / 64].load(std::memory_order_acquire) >> (r % 64) & 1) != 0) w.missing.push_back(r);
  if (from.version.load(std::memory_order_acquire) != w.version) return std::nullopt;
  return w;
}

// Returns whether `missing` has still not begun the call that a thread of `waiter` is in.
bool still_absent(const std::shared_ptr<Arena>& arena, const Wait& wait, int waiter, int missing) {
  if (wait.counter != 0)
    return arena->at<std::atomic<uint64_t>>(wait.counter)->load(std::memory_order_acquire) < wait.sequence;
  const std::unique_ptr<Board> found = Board::find(arena, wait.board);
  if (found == nullptr) return false;
  const Board& board = *found;
  const int from = member_of(board, missing), to = member_of(board, waiter);
  if (from < 0 || to < 0) return false;
  if (wait.op == CollectiveOp::send)
    return board.pair(wait.channel, to, from).wanted.load(std::memory_order_acquire) <= wait.sequence;
  if (wait.op == CollectiveOp::recv)
    return board.pair(wait.channel, from, to)
               .slots[wait.sequence % kPairSlots]
               .arrived.load(std::memory_order_acquire) <= wait.sequence;
  return board.channel(wait.channel, from)
             .slots[wait.sequence % kSlots]
             .arrived.load(std::memory_order_acquire) <= wait.sequence;
}

std::string describe(const Arena& arena, const Wait& wait, int rank) {
  const char* const held = arena.at<BoardHeader>(wait.board)->label;
  const std::string label(held, strnlen(held, sizeof BoardHeader::label));
  if (wait.counter != 0) return text(label, ".counter of rank ", rank);
  return text(label, ".", name(wait.op), " #", wait.sequence, " of rank ", rank, " (", wait.count, " ",
              name(wait.dtype), ")");
}

// All waits of the domain at one moment.
class Waits {
 public:
  explicit Waits(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {
    const int size = static_cast<int>(arena_->header().size);
    for (int r = 0; r < size; ++r) ranks_.push_back(look_at(r));
    // Drops the waits for ranks that have meanwhile begun the call.
    for (int r = 0; r < size; ++r)
      for (const auto& notice : ranks_[static_cast<size_t>(r)].waits)
        std::erase_if(notice->missing, [&](int m) { return !still_absent(arena_, *notice, r, m); });
    while (drop_one()) {
    }
  }

  struct Link {
    int rank;
    const Wait* wait;
  };
  // Returns a cycle of stuck ranks that begins and ends with the record at `place` of `start`, or an empty
  // list.
  std::vector<Link> ring(int start, int place) const {
    const RankWaits& own = ranks_[static_cast<size_t>(start)];
    std::vector<bool> seen(ranks_.size(), false);
    std::vector<Link> links;
    if (!own.stuck) return links;
    for (const auto& wait : own.waits)
      if (wait->place == place && follow(start, start, *wait, seen, links)) return links;
    return {};
  }

  // Returns whether no record of the stuck ranks has changed since it was read.
  bool stand_still() const {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].stuck) continue;
      const RankSlot& slot = arena_->rank(static_cast<int>(r));
      if (slot.threads.load(std::memory_order_seq_cst) != ranks_[r].threads) return false;
      for (const auto& wait : ranks_[r].waits)
        if (slot.waits[wait->place].version.load(std::memory_order_seq_cst) != wait->version) return false;
    }
    return true;
  }

 private:
  struct Noticed : Wait {
    int place = 0;
  };
  struct RankWaits {
    uint32_t threads = 0;
    std::vector<std::unique_ptr<Noticed>> waits;
    bool stuck = false;
  };

  RankWaits look_at(int r) const {
    RankWaits all;
    const RankSlot& slot = arena_->rank(r);
    all.threads = slot.threads.load(std::memory_order_seq_cst);
    for (int place = 0; place < kNotices; ++place)
      if (auto wait = read(slot.waits[place], static_cast<int>(arena_->header().size)))
        all.waits.push_back(std::make_unique<Noticed>(Noticed{std::move(*wait), place}));
    all.stuck = all.threads != 0 && all.waits.size() == all.threads;
    return all;
  }

  bool waits_for_stuck(const Wait& wait) const {
    return std::any_of(wait.missing.begin(), wait.missing.end(),
                       [&](int m) { return ranks_[static_cast<size_t>(m)].stuck; });
  }

  // Unmarks one rank that has a thread which waits for no stuck rank, as such a rank is not stuck itself.
  // Returns false when there is none left.
  bool drop_one() {
    for (RankWaits& rank : ranks_) {
      if (!rank.stuck) continue;
      rank.stuck = std::all_of(rank.waits.begin(), rank.waits.end(),
                               [&](const auto& wait) { return waits_for_stuck(*wait); });
      if (!rank.stuck) return true;
    }
    return false;
  }

  bool follow(int start, int at, const Wait& wait, std::vector<bool>& seen, std::vector<Link>& links) const {
    links.push_back({at, &wait});
    for (const int next : wait.missing) {
      if (next == start) return true;
      const RankWaits& there = ranks_[static_cast<size_t>(next)];
      if (!there.stuck || seen[static_cast<size_t>(next)]) continue;
      seen[static_cast<size_t>(next)] = true;
      for (const auto& its : there.waits)
        if (follow(start, next, *its, seen, links)) return true;
    }
    links.pop_back();
    return false;
  }

  const std::shared_ptr<Arena> arena_;
  std::vector<RankWaits> ranks_;
};

// Returns nothing if the ranks that the thread waits for are not known.
std::optional<Wait> wait_of(Core& core, Waitable& what) {
  const Team& team = core.team();
  Wait wait;
  wait.board = team.board().offset();
  std::vector<int> missing;
  if (what.work() == nullptr) {
    wait.counter = what.counter_offset();
    wait.sequence = what.counter_value();
    if (wait.counter != 0) missing = what.missing();
  } else {
    const std::lock_guard lock(core.mutex());
    const Lanes& lanes = core.calls().lanes();
    const Op* const op = blocker(lanes, *what.work());
    if (op == nullptr) return std::nullopt;
    if (op->published) missing = waiting_for(team, lanes, *op, true);
    wait.sequence = op->sequence;
    wait.count = op->c.count;
    wait.op = op->c.op;
    wait.channel = op->channel;
    wait.dtype = op->c.dtype;
    wait.peer = op->c.peer;
  }
  for (const int r : missing) wait.missing.push_back(team.domain_rank(r));
  return wait;
}

}  // namespace

WaitNotice::~WaitNotice() {
  if (place_ >= 0) core_.team().member().give_back_notice(place_);
}

void WaitNotice::publish(Waitable& what) {
  const std::optional<Wait> wait = wait_of(core_, what);
  if (!wait) return;
  Member& member = core_.team().member();
  if (place_ < 0) place_ = member.take_notice();
  if (place_ >= 0) write(member.own().waits[place_], *wait);
}

bool WaitNotice::break_ring() const {
  if (place_ < 0) return false;
  const Member& member = core_.team().member();
  const Waits waits(member.arena_ptr());
  const std::vector<Waits::Link> ring = waits.ring(member.rank(), place_);
  if (ring.empty()) return false;
  std::string what = "calls wait for each other: ";
  for (size_t i = 0; i < ring.size(); ++i)
    what += text(i == 0 ? "" : ", ", describe(member.arena(), *ring[i].wait, ring[i].rank), " for rank ",
                 ring[(i + 1) % ring.size()].rank);
  if (!waits.stand_still()) return false;
  for (const Waits::Link& link : ring) {
    const std::unique_ptr<Board> board = Board::find(member.arena_ptr(), link.wait->board);
    if (board == nullptr) continue;
    Error error(Code::mismatch, what);
    error.op = link.wait->counter != 0 ? "counter" : name(link.wait->op);
    board->break_with(error, std::max(0, member_of(*board, member.rank())));
    for (int r = 0; r < board->size(); ++r) member.wake(board->member(r).domain_rank);
  }
  return true;
}

}  // namespace gangway::host
