// Creates the first engine of a host.
#include <algorithm>
#include <numeric>

#include "base/interrupt.h"
#include "gang/host/host.h"
#include "gang/host/host_engine.h"
#include "gang/host/presence/handover.h"

namespace gangway {

using host::Arena;
using host::ArenaOptions;
using host::BlockingCore;
using host::Board;
using host::HostEngine;
using host::Member;
using host::RankState;

namespace {

constexpr int64_t kBootstrapNapNs = 20'000'000;

std::vector<int> ranks_below(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Waits until every rank has mapped the arena. A rank that has seen all others may already have left again.
// It counts as present here, and the calls will report that it has left.
void meet(Member& member, host::Handover& handover, Deadline deadline) {
  for (int r = 0; r < member.size(); ++r) {
    for (;;) {
      const host::RankSlot& slot = member.arena().rank(r);
      const auto state = static_cast<RankState>(slot.state.load(std::memory_order_acquire));
      if (state == RankState::alive || slot.has_met.load(std::memory_order_acquire) != 0) break;
      if (state != RankState::absent) {
        handover.check();  // first, because its error says more than that the rank has left
        fail(Code::peer_lost, "host engine: rank ", r, " left while the gang was made");
      }
      handover.look();
      if (deadline.passed())
        fail(Code::timeout, "host engine: rank ", r, " did not come while the gang was made");
      poll_interrupt();
      const uint32_t doorbell = member.prepare_sleep();
      if (slot.state.load(std::memory_order_seq_cst) == static_cast<int32_t>(RankState::absent))
        member.sleep(doorbell, kBootstrapNapNs);
      member.end_sleep();
    }
  }
}

std::shared_ptr<Engine> root_engine(const std::shared_ptr<Rank>& rank, const std::shared_ptr<Member>& member,
                                    const EngineOptions& options) {
  auto board = std::make_unique<Board>(member->arena_ptr(), member->arena().header().root_board);
  auto core = std::make_shared<BlockingCore>(rank->works(), member, std::move(board), member->rank(),
                                             options.timeout_ms, options.label);
  return std::make_shared<HostEngine>(rank, std::move(core));
}

// Tells the other ranks if the calling thread ends inside the interrupt hook or inside the caller's store.
struct ThreadEnd {
  host::Handover& handover;
  bool returned = false;
  ~ThreadEnd() {
    if (!returned) handover.give_up(Error(Code::aborted, "its thread ended"));
  }
};

void join(std::shared_ptr<Member>& member, host::Handover& handover, const EngineOptions& options,
          Deadline deadline) {
  auto arena = handover.share(options.size,
                              ArenaOptions{options.arena_bytes, options.memory_limit, options.liveness_ms});
  const host::DomainHeader& header = arena->header();
  if (static_cast<int>(header.size) != options.size)
    fail(Code::invalid_argument, "host engine: rank ", options.rank, " says ", options.size,
         " ranks, rank 0 says ", header.size);
  if (header.liveness_ms != options.liveness_ms)
    fail(Code::invalid_argument, "host engine: rank ", options.rank, " says liveness_ms ",
         options.liveness_ms, ", rank 0 says ", header.liveness_ms);
  member = std::make_shared<Member>(std::move(arena), options.rank);
  if (options.rank == 0)
    member->arena().header().root_board = Board::create(*member, ranks_below(options.size), options.label);
  member->begin(member);
  meet(*member, handover, deadline);
}

}  // namespace

std::shared_ptr<Engine> make_host_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         const std::shared_ptr<Store>& store) {
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  host::Handover handover(*store, options.rank, deadline);
  std::shared_ptr<Member> member;  // destroyed last, so that peers can still read the reason
  ThreadEnd thread_end{handover};
  try {
    join(member, handover, options, deadline);
    handover.end();
    std::shared_ptr<Engine> engine = root_engine(rank, member, options);
    // From here on the engine of this rank announces when the rank leaves.
    member->own().has_met.store(1, std::memory_order_release);
    thread_end.returned = true;
    return engine;
  } catch (const Error& error) {
    thread_end.returned = true;
    handover.give_up(error);
    throw;
  } catch (const std::bad_alloc&) {
    thread_end.returned = true;
    handover.give_up(Error(Code::out_of_memory, "no memory"));
    throw;
  }
}

std::vector<std::shared_ptr<Engine>> make_host_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                              const EngineOptions& options) {
  const int size = static_cast<int>(ranks.size());
  const auto arena = Arena::create(size, true, ArenaOptions{options.arena_bytes, options.memory_limit});
  std::vector<std::shared_ptr<Member>> members;
  for (int r = 0; r < size; ++r) members.push_back(std::make_shared<Member>(arena, r));
  arena->header().root_board = Board::create(*members[0], ranks_below(size), options.label);
  for (const auto& member : members)
    member->begin(member);  // for all ranks before the first engine: it reads whether peers use membarrier
  std::vector<std::shared_ptr<Engine>> engines;
  for (size_t r = 0; r < members.size(); ++r) engines.push_back(root_engine(ranks[r], members[r], options));
  return engines;
}

}  // namespace gangway
