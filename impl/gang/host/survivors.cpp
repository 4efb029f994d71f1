// How the survivors of a broken engine meet, and are left alone by those that they leave behind.
#include <algorithm>

#include "base/interrupt.h"
#include "gang/host/core.h"

namespace gangway::host {
namespace {

// Looks until `over` says so, which may throw; past the deadline calls `late`, which throws.
template <typename Over, typename Late>
void nap_until(const Member& member, Deadline deadline, Over&& over, Late&& late) {
  for (;;) {
    const uint32_t bell = member.own().bell.load(std::memory_order_seq_cst);
    if (over()) return;
    if (deadline.passed()) late();
    poll_interrupt();
    member.own().sleeping.fetch_add(1, std::memory_order_seq_cst);
    member.nap(bell, 5'000'000);
    member.own().sleeping.fetch_sub(1, std::memory_order_seq_cst);
  }
}

uint64_t key_of(std::span<const int> survivors) {
  uint64_t key = survivors.size();
  for (const int r : survivors) key = (key * 0x9e3779b97f4a7c15ull) ^ static_cast<uint64_t>(r + 1);
  return key | 1;
}

}  // namespace

NewBoard Core::meet_survivors(std::span<const int> survivors) {
  if (member_->forked()) fail(Code::forked, options_.label, ".shrink: after fork");
  if (!error()) fail(Code::invalid_state, options_.label, ".shrink: the gang is not broken");
  const uint64_t key = key_of(survivors);
  if (survivors[0] == rank_) offer_board(survivors, key);
  {
    const std::lock_guard lock(mutex_);  // whoever was moving bytes has ended
    board_->member(rank_).quiet.store(key, std::memory_order_seq_cst);
  }
  for (const int r : others_) member_->wake(r);
  const Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  meet_all(survivors, key, deadline);
  wait_for_writers(survivors, deadline);
  return find_board(survivors[0], key, deadline);
}

// When the last attempt failed here, others may have taken its board: the same one again.
void Core::offer_board(std::span<const int> survivors, uint64_t key) {
  MemberLine& mine = board_->member(rank_);
  if (mine.shrink_key.load() == key && mine.shrunk.load() != mine.shrink_number.load()) return;
  std::vector<int> members;
  for (const int r : survivors) members.push_back(domain_rank(r));
  const uint64_t board = Board::create(*member_, members, options_.label);
  mine.shrink_key.store(0);  // whoever reads now looks again
  mine.shrink_board.store(board);
  mine.shrink_number.store(board_->header().shrinks.fetch_add(1) + 1);
  mine.shrink_key.store(key);
}

NewBoard Core::find_board(int first, uint64_t key, Deadline deadline) {
  const MemberLine& offer = board_->member(first);
  const std::atomic<uint64_t>& taken = board_->member(rank_).shrunk;
  uint64_t board = 0, number = 0;
  nap_until(
      *member_, deadline,
      [&] {
        if (offer.shrink_key.load() != key) return false;
        board = offer.shrink_board.load();
        number = offer.shrink_number.load();
        return number != taken.load() && offer.shrink_key.load() == key;
      },
      [&] { fail(Code::timeout, options_.label, ".shrink: rank ", first, " made no board"); });
  return {board, number};
}

void Core::took(const NewBoard& board) noexcept { board_->member(rank_).shrunk.store(board.number); }

void Core::meet_all(std::span<const int> survivors, uint64_t key, Deadline deadline) {
  for (const int r : survivors) {
    const auto come = [&] {
      const MemberLine& other = board_->member(r);
      if (other.quiet.load(std::memory_order_acquire) == key) return true;
      if (const auto loss = member_->loss(domain_rank(r)))
        throw lost_error(options_.label + ".shrink", "shrink", r, *loss);
      if (static_cast<Mark>(other.mark.load(std::memory_order_acquire)) == Mark::gone)
        fail(Code::peer_lost, options_.label, ".shrink: rank ", r, " left without shutdown");
      return false;
    };
    nap_until(*member_, deadline, come, [&] {
      fail(Code::timeout, options_.label, ".shrink: rank ", r, " did not come within ", options_.timeout_ms,
           " ms");
    });
  }
}

// A rank that was left out may live: stopped in the middle of a move, or not yet aware of the break. It
// begins no write into peers' memory any more (refuse_when_closed); what it has begun ends, or ends with its
// process.
void Core::wait_for_writers(std::span<const int> survivors, Deadline deadline) {
  board_->header().closed.exchange(1, std::memory_order_seq_cst);
  for (int r = 0; r < size_; ++r) {
    if (std::find(survivors.begin(), survivors.end(), r) != survivors.end()) continue;
    const int there = domain_rank(r);
    nap_until(
        *member_, deadline,
        [&] { return arena_.rank(there).writing.load(std::memory_order_seq_cst) == 0 || arena_.died(there); },
        [&] {
          fail(Code::timeout, options_.label, ".shrink: ", name_of(r),
               " is left out, but it lives and did not end a write into the others' memory within ",
               options_.timeout_ms, " ms");
        });
  }
}

}  // namespace gangway::host
