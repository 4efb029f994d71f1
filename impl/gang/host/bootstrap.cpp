// How the first engine of a host comes to be, and how the survivors of a broken one meet.
#include <algorithm>
#include <numeric>

#include "base/interrupt.h"
#include "gang/host/handover.h"
#include "gang/host/host.h"
#include "gang/host/host_engine.h"

namespace gangway {

using host::Arena;
using host::ArenaOptions;
using host::Board;
using host::Core;
using host::CoreOptions;
using host::HostEngine;
using host::Member;
using host::RankState;

namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Until every rank has mapped the arena.
void meet(Member& member, host::Handover& handover, Deadline deadline) {
  for (int r = 0; r < member.size(); ++r) {
    for (;;) {
      const uint32_t bell = member.own().bell.load(std::memory_order_seq_cst);
      const auto state = static_cast<RankState>(member.arena().rank(r).state.load(std::memory_order_acquire));
      if (state == RankState::alive) break;
      handover.check();  // first: who gave up has left as well
      if (state != RankState::absent)
        fail(Code::peer_lost, "host engine: rank ", r, " left while the gang was made");
      if (deadline.passed())
        fail(Code::timeout, "host engine: rank ", r, " did not come while the gang was made");
      poll_interrupt();
      member.own().sleeping.fetch_add(1, std::memory_order_seq_cst);
      member.nap(bell, 2'000'000);
      member.own().sleeping.fetch_sub(1, std::memory_order_seq_cst);
    }
  }
}

std::shared_ptr<Engine> root_engine(const std::shared_ptr<Rank>& rank, const std::shared_ptr<Member>& member,
                                    const EngineOptions& options) {
  auto board = std::make_unique<Board>(member->arena_ptr(), member->arena().header().root_board);
  auto core = std::make_shared<Core>(rank->works(), member, std::move(board), member->rank(),
                                     CoreOptions{options.timeout_ms, options.label});
  return std::make_shared<HostEngine>(rank, std::move(core));
}

void join(std::shared_ptr<Member>& member, host::Handover& handover, const EngineOptions& options,
          Deadline deadline) {
  auto arena = handover.share(options.size, ArenaOptions{options.arena_bytes, options.memory_limit});
  if (static_cast<int>(arena->header().size) != options.size)
    fail(Code::invalid_argument, "host engine: rank ", options.rank, " says ", options.size,
         " ranks, rank 0 says ", arena->header().size);
  member = std::make_shared<Member>(std::move(arena), options.rank, options.liveness_ms);
  if (options.rank == 0)
    member->arena().header().root_board = Board::create(*member, all_ranks(options.size), options.label);
  member->begin(member);
  meet(*member, handover, deadline);
}

}  // namespace

std::shared_ptr<Engine> make_host_engine(const std::shared_ptr<Rank>& rank, const EngineOptions& options,
                                         const std::shared_ptr<Store>& store) {
  const Deadline deadline = Deadline::after_ms(options.timeout_ms);
  host::Handover handover(*store, options.rank, deadline);
  std::shared_ptr<Member> member;  // leaves after the others can know why
  try {
    join(member, handover, options, deadline);
    handover.end();
    return root_engine(rank, member, options);
  } catch (const Error& error) {
    handover.give_up(error);
    throw;
  } catch (const std::bad_alloc&) {
    handover.give_up(Error(Code::out_of_memory, "no memory"));
    throw;
  }
}

std::vector<std::shared_ptr<Engine>> make_host_thread_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                              const EngineOptions& options) {
  const int size = static_cast<int>(ranks.size());
  const auto arena = Arena::create(size, true, ArenaOptions{options.arena_bytes, options.memory_limit});
  std::vector<std::shared_ptr<Member>> members;
  for (int r = 0; r < size; ++r) members.push_back(std::make_shared<Member>(arena, r, 0));
  arena->header().root_board = Board::create(*members[0], all_ranks(size), options.label);
  for (const auto& member : members)
    member->begin(member);  // all first: an engine looks at its peers' fences
  std::vector<std::shared_ptr<Engine>> engines;
  for (size_t r = 0; r < members.size(); ++r) engines.push_back(root_engine(ranks[r], members[r], options));
  return engines;
}

namespace host {

uint64_t Core::meet_survivors(std::span<const int> survivors) {
  if (member_->forked()) fail(Code::forked, options_.label, ".shrink: after fork");
  if (!error()) fail(Code::invalid_state, options_.label, ".shrink: the gang is not broken");
  uint64_t key = survivors.size();
  for (const int r : survivors) key = (key * 0x9e3779b97f4a7c15ull) ^ static_cast<uint64_t>(r + 1);
  key |= 1;
  MemberLine& mine = board_->member(rank_);
  if (survivors[0] == rank_) {
    std::vector<int> members;
    for (const int r : survivors) members.push_back(domain_rank(r));
    mine.shrink_board.store(Board::create(*member_, members, options_.label), std::memory_order_relaxed);
    mine.shrink_key.store(key, std::memory_order_release);
  }
  {
    const std::lock_guard lock(mutex_);  // whoever was moving bytes has ended
    mine.quiet.store(key, std::memory_order_seq_cst);
  }
  for (const int r : others_) member_->wake(r);
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  for (const int r : survivors) {
    for (;;) {
      const uint32_t bell = member_->own().bell.load(std::memory_order_seq_cst);
      const MemberLine& other = board_->member(r);
      if (other.quiet.load(std::memory_order_acquire) == key) break;
      if (const auto loss = member_->loss(domain_rank(r)))
        throw lost_error(options_.label + ".shrink", "shrink", r, *loss);
      if (static_cast<Mark>(other.mark.load(std::memory_order_acquire)) == Mark::gone)
        fail(Code::peer_lost, options_.label, ".shrink: rank ", r, " left without shutdown");
      if (deadline.passed())
        fail(Code::timeout, options_.label, ".shrink: rank ", r, " did not come within ", options_.timeout_ms,
             " ms");
      poll_interrupt();
      member_->own().sleeping.fetch_add(1, std::memory_order_seq_cst);
      member_->nap(bell, 5'000'000);
      member_->own().sleeping.fetch_sub(1, std::memory_order_seq_cst);
    }
  }
  const MemberLine& first = board_->member(survivors[0]);
  while (first.shrink_key.load(std::memory_order_acquire) != key) {
    if (deadline.passed())
      fail(Code::timeout, options_.label, ".shrink: rank ", survivors[0], " made no board");
    member_->nap(member_->own().bell.load(), 1'000'000);
  }
  return first.shrink_board.load(std::memory_order_relaxed);
}

}  // namespace host

}  // namespace gangway
