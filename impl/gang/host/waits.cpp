#include "gang/host/waits.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace gangway::host {
namespace {

constexpr int kWord = 64;  // bits of one word of a WaitRecord

// Returns nothing if no thread waits there, or if the record changed while it was read.
std::optional<Wait> read(const WaitRecord& from) {
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
  for (int i = kMaxRanks / kWord - 1; i >= 0; --i)
    w.missing = w.missing << kWord | Ranks(from.missing[i].load(std::memory_order_acquire));
  if (from.version.load(std::memory_order_acquire) != w.version) return std::nullopt;
  return w;
}

}  // namespace

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
  Ranks rest = wait.missing;
  for (auto& word : to.missing) {
    word.store((rest & Ranks(~uint64_t{0})).to_ullong(), std::memory_order_release);
    rest >>= kWord;
  }
  to.version.store(version + 2, std::memory_order_seq_cst);
}

const Boards::Members* Boards::find(uint64_t offset) {
  const auto [place, is_new] = known_.try_emplace(offset);
  Members& found = place->second;
  if (is_new && (found.board = Board::find(arena_, offset)) != nullptr) {
    found.rank_of.fill(-1);
    for (int r = 0; r < found.board->size(); ++r) {
      const int there = found.board->member(r).domain_rank;  // anything, if the board has been freed
      if (there >= 0 && there < kMaxRanks) found.rank_of[static_cast<size_t>(there)] = r;
    }
  }
  return found.board == nullptr ? nullptr : &found;
}

bool Boards::still_absent(const Wait& wait, int waiter, int missing) {
  if (wait.counter != 0)
    return arena_->at<std::atomic<uint64_t>>(wait.counter)->load(std::memory_order_acquire) < wait.sequence;
  const Members* const found = find(wait.board);
  if (found == nullptr) return false;
  const Board& board = *found->board;
  const int from = found->rank_of[static_cast<size_t>(missing)];
  const int to = found->rank_of[static_cast<size_t>(waiter)];
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

std::string Boards::rank_text(const Wait& wait, int rank) {
  const Members* const found = find(wait.board);
  const int member = found == nullptr ? -1 : found->rank_of[static_cast<size_t>(rank)];
  return member < 0 ? text("global rank ", rank) : found->board->rank_text(member);
}

std::string Boards::call_text(const Wait& wait) const {
  const char* const held = arena_->at<BoardHeader>(wait.board)->label;
  const std::string label(held, strnlen(held, sizeof BoardHeader::label));
  return wait.counter != 0 ? label + ".counter" : text(label, ".", name(wait.op), " #", wait.sequence);
}

std::string Boards::describe(const Wait& wait, int rank) {
  const std::string call = text(call_text(wait), " of ", rank_text(wait, rank));
  return wait.counter != 0 ? call : text(call, " (", wait.count, " ", name(wait.dtype), ")");
}

Waits::Waits(std::shared_ptr<Arena> arena) : arena_(std::move(arena)), boards_(arena_) {
  const int size = static_cast<int>(arena_->header().size);
  ranks_.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    ranks_.push_back(look_at(r));
    const RankWaits& rank = ranks_.back();
    stuck_[static_cast<size_t>(r)] = rank.threads != 0 && rank.waits.size() == rank.threads;
  }
  drop_moving();  // first, since usually nobody is stuck, and nothing has to be looked up
  drop_arrived();
  drop_moving();
}

std::vector<Waits::Link> Waits::ring(int start, int place) const {
  Ranks seen;
  std::vector<Link> links;
  if (!stuck_[static_cast<size_t>(start)]) return links;
  for (const Noticed& wait : of(start))
    if (wait.place == place && follow(start, start, wait, seen, links)) return links;
  return {};
}

bool Waits::stand_still() const {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!stuck_[r]) continue;
    const RankSlot& slot = arena_->rank(static_cast<int>(r));
    if (slot.threads.load(std::memory_order_seq_cst) != ranks_[r].threads) return false;
    for (const Noticed& wait : ranks_[r].waits)
      if (slot.waits[wait.place].version.load(std::memory_order_seq_cst) != wait.version) return false;
  }
  return true;
}

Waits::RankWaits Waits::look_at(int r) const {
  RankWaits all;
  const RankSlot& slot = arena_->rank(r);
  all.threads = slot.threads.load(std::memory_order_seq_cst);
  for (int place = 0; place < kNotices; ++place)
    if (const auto wait = read(slot.waits[place])) all.waits.push_back(Noticed{*wait, place});
  return all;
}

// Unmarks the ranks that have a thread which waits for no stuck rank, as such a rank is not stuck itself.
void Waits::drop_moving() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!stuck_[r]) continue;
      stuck_[r] = std::all_of(ranks_[r].waits.begin(), ranks_[r].waits.end(),
                              [&](const Noticed& wait) { return (wait.missing & stuck_).any(); });
      changed = changed || !stuck_[r];
    }
  }
}

// Drops the waits of stuck ranks for ranks that have meanwhile begun the call.
void Waits::drop_arrived() {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!stuck_[r]) continue;
    for (Noticed& wait : ranks_[r].waits)
      for (size_t m = 0; m < ranks_.size(); ++m)
        if (wait.missing[m] && stuck_[m] &&
            !boards_.still_absent(wait, static_cast<int>(r), static_cast<int>(m)))
          wait.missing.reset(m);
  }
}

bool Waits::follow(int start, int at, const Wait& wait, Ranks& seen, std::vector<Link>& links) const {
  links.push_back({at, &wait});
  for (size_t next = 0; next < ranks_.size(); ++next) {
    if (!wait.missing[next]) continue;
    if (static_cast<int>(next) == start) return true;
    if (!stuck_[next] || seen[next]) continue;
    seen.set(next);
    for (const Noticed& its : ranks_[next].waits)
      if (follow(start, static_cast<int>(next), its, seen, links)) return true;
  }
  links.pop_back();
  return false;
}

}  // namespace gangway::host
