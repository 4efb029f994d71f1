#include "gang/host/cycle.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "gang/host/awaited.h"

namespace gangway::host {
namespace {

// Position of a domain rank in a board's gang; -1: no member.
int member_of(const Board& board, int domain_rank) {
  for (int r = 0; r < board.size(); ++r)
    if (board.member(r).domain_rank == domain_rank) return r;
  return -1;
}

struct Record {
  uint64_t version = 0, board = 0, sequence = 0, count = 0, counter = 0;
  CollectiveOp op = CollectiveOp::barrier;
  Channel channel = Channel::user;
  DType dtype = DType::f32;
  int peer = -1;
};

// An even version when the record is none or changed while it was read.
Record read(const WaitRecord& from) {
  Record r;
  r.version = from.version.load(std::memory_order_acquire);
  r.board = from.board.load(std::memory_order_acquire);
  r.sequence = from.sequence.load(std::memory_order_acquire);
  r.count = from.count.load(std::memory_order_acquire);
  r.counter = from.counter.load(std::memory_order_acquire);
  r.op = static_cast<CollectiveOp>(from.op.load(std::memory_order_acquire));
  r.channel = static_cast<Channel>(from.channel.load(std::memory_order_acquire));
  r.dtype = static_cast<DType>(from.dtype.load(std::memory_order_acquire));
  r.peer = from.peer.load(std::memory_order_acquire);
  if (from.version.load(std::memory_order_acquire) != r.version) r.version = 0;
  return r;
}

// Has `missing` still not begun the call that `waiter` is blocked in?
bool still_absent(const std::shared_ptr<Arena>& arena, const Record& record, int waiter, int missing) {
  if (record.counter != 0)
    return arena->at<std::atomic<uint64_t>>(record.counter)->load(std::memory_order_acquire) <
           record.sequence;
  const std::unique_ptr<Board> found = Board::find(arena, record.board);
  if (found == nullptr) return false;
  const Board& board = *found;
  const int from = member_of(board, missing), to = member_of(board, waiter);
  if (from < 0 || to < 0) return false;
  if (record.op == CollectiveOp::send)
    return board.pair(record.channel, to, from).wanted.load(std::memory_order_acquire) <= record.sequence;
  if (record.op == CollectiveOp::recv)
    return board.pair(record.channel, from, to)
               .slots[record.sequence % kPairSlots]
               .arrived.load(std::memory_order_acquire) <= record.sequence;
  return board.channel(record.channel, from)
             .slots[record.sequence % kSlots]
             .arrived.load(std::memory_order_acquire) <= record.sequence;
}

// Follows the records from `start`; the ring of ranks that leads back to it, or nothing.
bool follow(const std::shared_ptr<Arena>& arena, int start, int at, std::vector<bool>& seen,
            std::vector<int>& path, std::vector<uint64_t>& versions) {
  const WaitRecord& record = arena->rank(at).waiting;
  const Record copy = read(record);
  if ((copy.version & 1) == 0) return false;
  path.push_back(at);
  versions.push_back(copy.version);
  const int size = static_cast<int>(arena->header().size);
  for (int next = 0; next < size; ++next) {
    const uint64_t word = record.missing[next / 64].load(std::memory_order_relaxed);
    if ((word >> (next % 64) & 1) == 0 || !still_absent(arena, copy, at, next)) continue;
    if (next == start) return true;
    if (seen[static_cast<size_t>(next)]) continue;
    seen[static_cast<size_t>(next)] = true;
    if (follow(arena, start, next, seen, path, versions)) return true;
  }
  path.pop_back();
  versions.pop_back();
  return false;
}

std::string describe(const Arena& arena, const Record& record, int rank) {
  const char* const held = arena.at<BoardHeader>(record.board)->label;
  const std::string label(held, strnlen(held, sizeof BoardHeader::label));
  if (record.counter != 0) return text(label, ".fence of rank ", rank);
  return text(label, ".", name(record.op), " #", record.sequence, " of rank ", rank, " (", record.count, " ",
              name(record.dtype), ")");
}

}  // namespace

void publish_wait(Core& core, Waitable& what) {
  const Team& team = core.team();
  WaitRecord& record = team.member().own().waiting;
  std::vector<int> missing;
  Record next;
  next.board = team.board().offset();
  {
    const std::lock_guard lock(core.mutex());
    if (what.work() != nullptr) {
      const Lanes& lanes = core.calls().lanes();
      const Op* const op = blocker(lanes, *what.work());
      if (op == nullptr) return;
      missing = waiting_for(team, lanes, *op, true);
      next.sequence = op->sequence;
      next.count = op->c.count;
      next.op = op->c.op;
      next.channel = op->channel();
      next.dtype = op->c.dtype;
      next.peer = op->c.peer;
      if (!op->published) missing.clear();
    }
  }
  if (what.work() == nullptr) {
    next.counter = what.counter_offset();
    next.sequence = what.counter_value();
    if (next.counter != 0) missing = what.missing();
  }
  const uint64_t version = record.version.load(std::memory_order_relaxed);
  record.version.store((version | 1) + 1, std::memory_order_seq_cst);  // even
  record.board.store(next.board, std::memory_order_release);
  record.sequence.store(next.sequence, std::memory_order_release);
  record.count.store(next.count, std::memory_order_release);
  record.counter.store(next.counter, std::memory_order_release);
  record.op.store(static_cast<uint32_t>(next.op), std::memory_order_release);
  record.channel.store(static_cast<uint32_t>(next.channel), std::memory_order_release);
  record.dtype.store(static_cast<int32_t>(next.dtype), std::memory_order_release);
  record.peer.store(next.peer, std::memory_order_release);
  for (auto& word : record.missing) word.store(0, std::memory_order_release);
  for (const int r : missing) {
    const int d = team.domain_rank(r);
    record.missing[d / 64].fetch_or(uint64_t{1} << (d % 64), std::memory_order_release);
  }
  record.version.store((version | 1) + 2, std::memory_order_seq_cst);
}

void clear_wait(Core& core) noexcept {
  WaitRecord& record = core.team().member().own().waiting;
  const uint64_t version = record.version.load(std::memory_order_relaxed);
  if ((version & 1) != 0) record.version.store(version + 1, std::memory_order_seq_cst);
}

bool break_cycle(Team& team) {
  Member& member = team.member();
  Arena& arena = team.arena();
  std::vector<bool> seen(static_cast<size_t>(member.size()), false);
  std::vector<int> path;
  std::vector<uint64_t> versions;
  if (!follow(member.arena_ptr(), member.rank(), member.rank(), seen, path, versions)) return false;
  std::vector<Record> records;
  for (size_t i = 0; i < path.size(); ++i) {
    records.push_back(read(arena.rank(path[i]).waiting));
    if (records[i].version != versions[i]) return false;
  }
  std::string what = "calls wait for each other: ";
  for (size_t i = 0; i < path.size(); ++i) {
    what += (i == 0 ? "" : ", ") + describe(arena, records[i], path[i]) + " for rank " +
            std::to_string(path[(i + 1) % path.size()]);
  }
  for (size_t i = 0; i < path.size(); ++i)
    if (arena.rank(path[i]).waiting.version.load(std::memory_order_seq_cst) != versions[i]) return false;
  for (size_t i = 0; i < path.size(); ++i) {
    const std::unique_ptr<Board> board = Board::find(member.arena_ptr(), records[i].board);
    if (board == nullptr) continue;
    Error error(Code::mismatch, what);
    error.op = records[i].counter != 0 ? "fence" : gangway::name(records[i].op);
    board->break_with(error, std::max(0, member_of(*board, member.rank())));
    for (int r = 0; r < board->size(); ++r) member.wake(board->member(r).domain_rank);
  }
  return true;
}

}  // namespace gangway::host
