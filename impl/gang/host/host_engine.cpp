#include "gang/host/host_engine.h"

#include <algorithm>

#include "base/refusal.h"
#include "gang/byte_gather.h"
#include "gang/host/presence/region.h"

namespace gangway::host {
namespace {

uint64_t hash_of(std::span<const int> ranks) {
  uint64_t h = 0x9e3779b97f4a7c15ull + ranks.size();
  for (const int r : ranks) h = (h ^ static_cast<uint64_t>(r + 1)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
  return h;
}

}  // namespace

HostEngine::HostEngine(std::shared_ptr<Rank> owner, std::shared_ptr<BlockingCore> core)
    : owner_(std::move(owner)),
      core_(std::move(core)),
      threads_(member().arena().threads()),
      allocator_(make_slice_allocator(member().slice(), owner_->device_ptr())),
      survivors_(member(), board(), core_->team().rank(), label()) {}

HostEngine::~HostEngine() { core_->release(); }

WorkPtr HostEngine::run(Channel channel, std::span<const Collective> span, Stream&) {
  return core_->run(channel, span);
}

WorkPtr HostEngine::run_now(Channel channel, std::span<const Collective> span, Stream&) {
  return core_->run_now(channel, span);
}

std::vector<HostEngine::Note> HostEngine::exchange(Note mine) {
  std::vector<Note> notes;
  try {
    notes.resize(static_cast<size_t>(size()));
    const Collective c = gather_of_bytes(&mine, notes.data(), sizeof mine);
    core_->run(Channel::control, {&c, 1})->wait_input(Deadline::never());
  } catch (const Error& error) {  // breaks the engine, because the peers wait for this rank's part
    core_->abort(error);
    throw;
  } catch (const std::bad_alloc&) {
    core_->abort(Error(Code::out_of_memory, "no memory"));
    throw;
  } catch (...) {  // the thread ends inside the interrupt hook
    core_->abort(Error(Code::aborted, "the thread ended in the call"));
    throw;
  }
  return notes;
}

std::shared_ptr<HostEngine> HostEngine::child(uint64_t board, int rank, const std::string& label) const {
  auto core = std::make_shared<BlockingCore>(core_->owner_ptr(), core_->team().member_ptr(),
                                             std::make_unique<Board>(member().arena_ptr(), board), rank,
                                             core_->timeout_ms(), label);
  return std::make_shared<HostEngine>(owner_, std::move(core));
}

std::shared_ptr<Engine> HostEngine::create(std::span<const int> ranks, const std::string& name) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank());
  Note mine{0, hash_of(ranks)};
  std::optional<Error> refusal;
  if (!ranks.empty() && ranks[0] == rank()) {
    std::vector<int> members;
    for (const int r : ranks) members.push_back(board().member(r).domain_rank);
    try {
      mine.offset = Board::create(member(), members, name);
      board().hold_child(mine.offset);
    } catch (const Error& error) {
      refusal = error;
    }
  }
  const std::vector<Note> notes = exchange(mine);
  if (refusal) throw *refusal;
  // All ranks that passed the list make the same check, whether they are members or not. Otherwise some would
  // go on to their next call.
  for (const int r : ranks) {  // other ranks may have passed another list
    if (notes[static_cast<size_t>(r)].check == mine.check) continue;
    if (mine.offset != 0) {
      board().drop_child(mine.offset);
      member().slice()->free(mine.offset);
    }
    fail(Code::mismatch, label(), ".create_gang: ", ranks_text(board(), {rank(), r}), " name other members");
  }
  if (ranks.empty()) return nullptr;
  const Note& first = notes[static_cast<size_t>(ranks[0])];
  if (first.offset == 0)
    fail(Code::out_of_memory, label(), ".create_gang: ", board().rank_text(ranks[0]),
         " had no memory for it");
  if (place == ranks.end()) return nullptr;
  auto engine = child(first.offset, static_cast<int>(place - ranks.begin()), name);
  board().child_taken(ranks[0], engine->board());
  return engine;
}

SharedRegion HostEngine::allocate(size_t bytes) {
  // The sizes are compared first, so that no rank allocates a region that another refuses. After this
  // exchange all ranks have also taken the previous region.
  const std::vector<Note> sizes = exchange({0, bytes});
  for (int r = 0; r < size(); ++r)
    if (sizes[static_cast<size_t>(r)].check != bytes)
      fail(Code::mismatch, label(), ".alloc_shared: ", bytes, " bytes on rank ", rank(), ", ",
           sizes[static_cast<size_t>(r)].check, " on rank ", r);
  Device& device = owner_->device();
  if (bytes == 0) {
    return {Buffer::borrow(device, MemoryKind::gang_shared, nullptr, 0, nullptr),
            Buffer::borrow(device, MemoryKind::gang_shared, nullptr, 0, nullptr, true)};
  }
  Note mine;
  std::optional<Error> refusal;
  std::shared_ptr<RegionHold> hold;  // an exception below releases it
  const auto take = [&](uint64_t made) { hold = std::make_shared<RegionHold>(member(), board(), made); };
  if (rank() == 0) {
    refusal = error_thrown_by([&] { mine.offset = RegionHold::make(member(), board(), bytes); });
    if (mine.offset != 0) take(mine.offset);
  }
  const uint64_t made = exchange(mine)[0].offset;
  if (refusal) throw *refusal;
  if (made == 0) fail(Code::out_of_memory, label(), ".alloc_shared: rank 0 has no ", bytes, " bytes");
  if (hold == nullptr) take(made);
  Arena& arena = member().arena();
  auto* const read_only = const_cast<unsigned char*>(arena.read_only(hold->offset()));
  return {Buffer::borrow(device, MemoryKind::gang_shared, arena.at(hold->offset()), bytes, hold),
          Buffer::borrow(device, MemoryKind::gang_shared, read_only, bytes, hold, true)};
}

Survivors::Agreed HostEngine::meet_survivors(std::span<const int> survivors) {
  if (member().forked()) fail(Code::forked, label(), ".shrink: after fork");
  if (!error()) fail(Code::invalid_state, label(), ".shrink: the gang is not broken");
  member().register_thread();
  { const std::lock_guard quiet(core_->mutex()); }  // waits until no thread moves bytes any more
  return survivors_.meet(survivors, core_->timeout_ms());
}

std::shared_ptr<Engine> HostEngine::shrink(std::vector<int>& survivors) {
  if (std::find(survivors.begin(), survivors.end(), rank()) == survivors.end())
    fail(Code::invalid_argument, label(), ".shrink: rank ", rank(), " is not among the survivors");
  Survivors::Agreed agreed = meet_survivors(survivors);
  const auto place = std::find(agreed.ranks.begin(), agreed.ranks.end(), rank());
  auto engine = child(agreed.board, static_cast<int>(place - agreed.ranks.begin()), label());
  survivors_.took(agreed);
  survivors = std::move(agreed.ranks);
  return engine;
}

}  // namespace gangway::host
