#include "gang/host/presence/board.h"

#include <sched.h>

#include <algorithm>

#include "base/line.h"
#include "gang/host/presence/region.h"

namespace gangway::host {
namespace {

// The head of a member's block, which links it into the board's list.
struct KeptBlock {
  uint64_t next;
  uint64_t bytes;
  int32_t owner;
};
static_assert(sizeof(KeptBlock) <= kLine);

struct Offsets {
  size_t members, channels, pairs, bytes;
  explicit Offsets(size_t w)
      : members(round_up(sizeof(BoardHeader), kLine)),
        channels(members + w * sizeof(MemberLine)),
        pairs(channels + kChannels * w * sizeof(ChannelLine)),
        bytes(round_up(pairs + kChannels * w * w * sizeof(PairLine), kPage)) {}
};

}  // namespace

uint64_t Board::create(Member& member, std::span<const int> members, const std::string& label) {
  const Offsets at(members.size());
  const uint64_t offset = member.slice()->allocate(at.bytes, true, true);
  auto* const header = member.arena().at<BoardHeader>(offset);
  header->bytes = at.bytes;
  header->size = static_cast<uint32_t>(members.size());
  header->owner = member.rank();
  header->holders.store(header->size, std::memory_order_relaxed);
  copy_line(header->label, sizeof header->label, label);
  auto* const lines = member.arena().at<MemberLine>(offset + at.members);
  for (size_t i = 0; i < members.size(); ++i) lines[i].domain_rank = members[i];
  return offset;
}

Board::Board(std::shared_ptr<Arena> arena, uint64_t offset)
    : Board(arena, offset, arena->at<BoardHeader>(offset)->size) {}

std::unique_ptr<Board> Board::find(const std::shared_ptr<Arena>& arena, uint64_t offset) {
  const uint64_t end = arena->header().bytes;
  if (offset == 0 || offset % kPage != 0 || offset > end - sizeof(BoardHeader)) return nullptr;
  const uint32_t size = arena->at<BoardHeader>(offset)->size;
  if (size < 1 || size > kMaxRanks || Offsets(size).bytes > end - offset) return nullptr;
  return std::unique_ptr<Board>(new Board(arena, offset, size));
}

Board::Board(std::shared_ptr<Arena> arena, uint64_t offset, uint32_t size)
    : arena_(std::move(arena)), offset_(offset), size_(static_cast<int>(size)) {
  header_ = arena_->at<BoardHeader>(offset);
  const Offsets at(size);
  members_ = arena_->at<MemberLine>(offset + at.members);
  channels_ = arena_->at<ChannelLine>(offset + at.channels);
  pairs_ = arena_->at<PairLine>(offset + at.pairs);
}

bool Board::renumbers() const {
  if (size_ != static_cast<int>(arena_->header().size)) return true;
  for (int r = 0; r < size_; ++r)
    if (members_[r].domain_rank != r) return true;
  return false;
}

std::string Board::rank_text(int r) const {
  const bool known = r >= 0 && r < size_ && renumbers();
  return known ? text("rank ", r, " (global rank ", members_[r].domain_rank, ")") : text("rank ", r);
}

void Board::attach(int rank) {
  rank_ = rank;
  members_[rank].taken.store(1, std::memory_order_seq_cst);
}

void Board::hold_child(uint64_t offset) noexcept {
  std::atomic<uint32_t>& holders = arena_->at<BoardHeader>(offset)->holders;
  holders.fetch_add(1, std::memory_order_relaxed);
  uint64_t none = 0;
  if (!members_[rank_].making.compare_exchange_strong(none, offset))
    holders.fetch_sub(1, std::memory_order_relaxed);
}

void Board::child_taken(int maker, const Board& child) noexcept {
  for (int r = 0; r < child.size_; ++r)
    if (child.members_[r].taken.load(std::memory_order_seq_cst) == 0) return;
  uint64_t made = child.offset_;  // `child` has a reference to the board, so this one is not the last
  if (members_[maker].making.compare_exchange_strong(made, 0))
    child.header_->holders.fetch_sub(1, std::memory_order_acq_rel);
}

void Board::drop_child(uint64_t offset) noexcept {
  members_[rank_].making.compare_exchange_strong(offset, 0);
}

// Called when no member holds this board any more, so that a member that has not taken the child never will.
void Board::end_child(int maker) noexcept {
  const uint64_t offset = members_[maker].making.exchange(0);
  if (offset == 0) return;
  Board child(arena_, offset);
  uint32_t ended = 1;  // the reference of this board
  for (int r = 0; r < child.size_; ++r) {
    MemberLine& member = child.members_[r];
    if (member.taken.load(std::memory_order_seq_cst) == 0 &&
        member.detached.exchange(1, std::memory_order_acq_rel) == 0)
      ++ended;
  }
  if (child.header_->holders.fetch_sub(ended, std::memory_order_acq_rel) == ended) child.free_all();
}

Board::~Board() {
  if (rank_ < 0 || arena_->forked()) return;
  // Each reference is dropped once: by its holder, or by a peer if the holder has died. This loop collects
  // those of dead holders and subtracts them together with its own. Until then the count stays above zero, so
  // no other rank frees what the loop still reads.
  uint32_t ended = 0;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !arena_->died(members_[r].domain_rank)) continue;
    if (members_[r].detached.exchange(1, std::memory_order_acq_rel) == 0) ++ended;
  }
  if (ended != 0 && header_->holders.fetch_sub(ended, std::memory_order_acq_rel) == ended) free_all();
}

void Board::free_all() noexcept {
  for (int r = 0; r < size_; ++r) end_child(r);
  RegionHold::end_with_board(*arena_, *header_);
  uint64_t at = header_->blocks.load(std::memory_order_acquire);
  while (at != 0) {
    const KeptBlock block = *arena_->at<KeptBlock>(at);
    Slice::free_remote(*arena_, block.owner, at, block.bytes);
    at = block.next;
  }
  Slice::free_remote(*arena_, header_->owner, offset_, header_->bytes);
}

int64_t Board::broken_ns() const {
  return header_->broken.load(std::memory_order_acquire) == 2 ? header_->broken_ns : INT64_MAX;
}

bool Board::has_left(int r) const {
  if (r < 0 || r >= size_) return false;
  const Mark mark = mark_of(r);
  return mark == Mark::gone || mark == Mark::draining;
}

void Board::mark(Mark mark) noexcept {
  members_[rank_].marked_ns.store(now_ns(), std::memory_order_relaxed);
  members_[rank_].mark.store(static_cast<uint32_t>(mark), std::memory_order_seq_cst);
  if (mark != Mark::left) header_->gone.fetch_add(1, std::memory_order_seq_cst);
}

void Board::keep_block(int domain_rank, uint64_t offset, size_t bytes) {
  auto* const block = arena_->at<KeptBlock>(offset);
  block->bytes = bytes;
  block->owner = domain_rank;
  uint64_t next = header_->blocks.load(std::memory_order_relaxed);
  do {
    block->next = next;
  } while (!header_->blocks.compare_exchange_weak(next, offset, std::memory_order_acq_rel,
                                                  std::memory_order_relaxed));
}

bool Board::break_with(const Error& error, int by) noexcept {
  uint32_t whole = 0;
  if (!header_->broken.compare_exchange_strong(whole, 1, std::memory_order_acq_rel)) return false;
  header_->broken_ns = now_ns();
  header_->code = static_cast<int32_t>(error.code());
  header_->by = by;
  header_->peer = error.peer;
  copy_line(header_->op, sizeof header_->op, error.op);
  copy_line(header_->message, sizeof header_->message, error.message());
  header_->broken.store(2, std::memory_order_seq_cst);
  return true;
}

std::optional<Error> Board::error(int own_rank) const {
  if (!broken()) return std::nullopt;
  // The writer copies one text. It may have died meanwhile, so the wait is bounded.
  for (int i = 0; i < 10'000 && header_->broken.load(std::memory_order_acquire) == 1; ++i) sched_yield();
  if (header_->broken.load(std::memory_order_acquire) != 2)
    return Error(Code::aborted, text(header_->label, ": broken by a rank that died at it"));
  const Code code = static_cast<Code>(header_->code);
  // An abort by the caller stays an abort, because the lost peer that it names may belong to another gang.
  const bool left = code == Code::peer_lost && has_left(header_->peer);
  Error error = code == Code::mismatch || code == Code::timeout || left
                    ? Error(code, header_->message)
                    : Error(Code::aborted, text(header_->label, ": aborted by ", rank_text(header_->by), ": ",
                                                header_->message));
  error.gang = header_->label;
  error.op = header_->op;
  error.rank = own_rank;
  // The text of a timeout says who is late; the rank that broke the gang only told it.
  error.peer = left ? header_->peer : code == Code::timeout ? -1 : header_->by;
  return error;
}

}  // namespace gangway::host
