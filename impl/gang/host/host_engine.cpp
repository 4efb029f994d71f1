#include "gang/host/host_engine.h"

#include <algorithm>

namespace gangway::host {
namespace {

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Who holds a shared region, by rank of the domain; stands behind it.
struct alignas(kLine) Holders {
  std::atomic<uint64_t> ranks[kMaxRanks / 64];
  std::atomic<uint32_t> count;  // whoever ends the last hold frees
};

// One rank's hold on a shared region. The last hold frees it; the dead never let go, so the living end their
// holds.
class RegionHold {
 public:
  RegionHold(const Member& member, uint64_t offset, size_t bytes, int owner)
      : arena_(member.arena_ptr()), rank_(member.rank()), offset_(offset), bytes_(bytes), owner_(owner) {}
  ~RegionHold() {
    if (arena_->forked()) return;
    Holders& all = holders(*arena_, offset_, bytes_);
    uint32_t ended = 0;  // as for a board: each hold once, by its holder or for a dead one
    for (int r = 0; r < static_cast<int>(arena_->header().size); ++r) {
      if (r != rank_ && !arena_->died(r)) continue;
      const uint64_t bit = uint64_t{1} << r % 64;
      if ((all.ranks[static_cast<size_t>(r) / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0)
        ++ended;
    }
    if (ended != 0 && all.count.fetch_sub(ended, std::memory_order_acq_rel) == ended)
      Slice::free_remote(*arena_, owner_, offset_, block_bytes(bytes_));
  }
  RegionHold(const RegionHold&) = delete;
  RegionHold& operator=(const RegionHold&) = delete;

  static size_t block_bytes(size_t bytes) {
    return round_up(round_up(bytes, kLine) + sizeof(Holders), kPage);
  }
  static Holders& holders(const Arena& arena, uint64_t offset, size_t bytes) {
    return *arena.at<Holders>(offset + round_up(bytes, kLine));
  }
  // Before any rank can let go: all members of `board` hold it.
  static void begin(const Arena& arena, uint64_t offset, size_t bytes, const Board& board) {
    Holders& all = holders(arena, offset, bytes);
    all.count.store(static_cast<uint32_t>(board.size()), std::memory_order_relaxed);
    for (int r = 0; r < board.size(); ++r) {
      const auto at = static_cast<size_t>(board.member(r).domain_rank);
      all.ranks[at / 64].fetch_or(uint64_t{1} << at % 64, std::memory_order_relaxed);
    }
  }

 private:
  const std::shared_ptr<Arena> arena_;
  const int rank_;
  const uint64_t offset_;
  const size_t bytes_;
  const int owner_;
};

uint64_t hash_of(std::span<const int> ranks) {
  uint64_t h = 0x9e3779b97f4a7c15ull + ranks.size();
  for (const int r : ranks) h = (h ^ static_cast<uint64_t>(r + 1)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
  return h;
}

}  // namespace

HostEngine::HostEngine(std::shared_ptr<Rank> owner, std::shared_ptr<Core> core)
    : owner_(std::move(owner)),
      core_(std::move(core)),
      threads_(core_->member().arena().threads()),
      allocator_(make_slice_allocator(core_->member().slice(), owner_->device_ptr())) {}

HostEngine::~HostEngine() { core_->release(); }

WorkPtr HostEngine::run(Channel channel, std::span<const Collective> span, Stream&) {
  return core_->run(channel, span);
}

void HostEngine::run_now(Channel channel, std::span<const Collective> span, Stream&, Order& order) {
  core_->run_now(channel, span, order);
}

std::vector<HostEngine::Note> HostEngine::exchange(Note mine) {
  std::vector<Note> notes;
  try {
    notes.resize(static_cast<size_t>(size()));
    Collective c;
    c.op = CollectiveOp::all_gather;
    c.in = &mine;
    c.out = notes.data();
    c.count = sizeof mine;
    c.dtype = DType::u8;
    core_->run(Channel::control, {&c, 1})->wait_input(Deadline::never());
  } catch (const Error& error) {  // an interrupt, say: the peers wait for this rank's part, which ends here
    core_->abort(error);
    throw;
  } catch (const std::bad_alloc&) {
    core_->abort(Error(Code::out_of_memory, "no memory"));
    throw;
  }
  return notes;
}

std::shared_ptr<Engine> HostEngine::child(uint64_t board, int rank) const {
  auto core = std::make_shared<Core>(core_->owner(), core_->member_ptr(),
                                     std::make_unique<Board>(core_->member().arena_ptr(), board), rank,
                                     core_->options());
  return std::make_shared<HostEngine>(owner_, std::move(core));
}

std::shared_ptr<Engine> HostEngine::create(std::span<const int> ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank());
  Note mine{0, hash_of(ranks)};
  std::optional<Error> refusal;
  if (!ranks.empty() && ranks[0] == rank()) {
    std::vector<int> members;
    for (const int r : ranks) members.push_back(core_->board().member(r).domain_rank);
    try {
      mine.offset = Board::create(core_->member(), members, core_->options().label);
    } catch (const Error& error) {
      refusal = error;
    }
  }
  const std::vector<Note> notes = exchange(mine);
  if (refusal) throw *refusal;
  // Whoever named the list decides alike, members or not: else some would go on to their next call.
  for (const int r : ranks) {  // others may name a list of their own
    if (notes[static_cast<size_t>(r)].check == mine.check) continue;
    if (mine.offset != 0) core_->member().slice()->free(mine.offset);
    fail(Code::mismatch, core_->options().label, ".create_gang: ranks ", rank(), " and ", r,
         " name other members");
  }
  if (ranks.empty()) return nullptr;
  const Note& first = notes[static_cast<size_t>(ranks[0])];
  if (first.offset == 0)
    fail(Code::out_of_memory, core_->options().label, ".create_gang: rank ", ranks[0],
         " had no memory for it");
  if (place == ranks.end()) return nullptr;
  return child(first.offset, static_cast<int>(place - ranks.begin()));
}

SharedRegion HostEngine::allocate_shared(size_t bytes) {
  Note mine{0, bytes};
  std::optional<Error> refusal;
  Arena& arena = core_->member().arena();
  const int owner = core_->board().member(0).domain_rank;
  std::shared_ptr<RegionHold> hold;  // let go of on every way out but the last
  if (rank() == 0 && bytes != 0) {
    try {
      const bool may_fit = bytes <= arena.header().slice_bytes;  // else the sum below could wrap
      mine.offset = core_->member().slice()->allocate(may_fit ? RegionHold::block_bytes(bytes) : bytes, true);
      RegionHold::begin(arena, mine.offset, bytes, core_->board());
      hold = std::make_shared<RegionHold>(core_->member(), mine.offset, bytes, owner);
    } catch (const Error& error) {
      refusal = error;
    }
  }
  const std::vector<Note> notes = exchange(mine);
  if (refusal) throw *refusal;
  const uint64_t offset = notes[0].offset;
  if (offset != 0 && hold == nullptr)
    hold = std::make_shared<RegionHold>(core_->member(), offset, notes[0].check, owner);
  Device& device = owner_->device();
  for (int r = 0; r < size(); ++r)
    if (notes[static_cast<size_t>(r)].check != bytes)
      fail(Code::mismatch, core_->options().label, ".alloc_shared: ", bytes, " bytes on rank ", rank(), ", ",
           notes[static_cast<size_t>(r)].check, " on rank ", r);
  if (bytes == 0) {
    return {Buffer::borrow(device, MemoryKind::gang_shared, nullptr, 0, nullptr),
            Buffer::borrow(device, MemoryKind::gang_shared, nullptr, 0, nullptr, true)};
  }
  if (offset == 0)
    fail(Code::out_of_memory, core_->options().label, ".alloc_shared: rank 0 has no ", bytes, " bytes");
  auto* const read_only = const_cast<unsigned char*>(arena.read_only(offset));
  return {Buffer::borrow(device, MemoryKind::gang_shared, arena.at(offset), bytes, hold),
          Buffer::borrow(device, MemoryKind::gang_shared, read_only, bytes, hold, true)};
}

std::shared_ptr<Engine> HostEngine::shrink(std::span<const int> survivors) {
  const auto place = std::find(survivors.begin(), survivors.end(), rank());
  if (place == survivors.end())
    fail(Code::invalid_argument, core_->options().label, ".shrink: rank ", rank(),
         " is not among the survivors");
  const NewBoard board = core_->meet_survivors(survivors);
  auto engine = child(board.offset, static_cast<int>(place - survivors.begin()));
  core_->took(board);
  return engine;
}

}  // namespace gangway::host
