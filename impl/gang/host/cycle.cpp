#include "gang/host/cycle.h"

#include <algorithm>
#include <optional>

#include "gang/host/call/awaited.h"
#include "gang/host/waits.h"

namespace gangway::host {
namespace {

// A living process shows itself ten times a second (Watchdog).
constexpr int64_t kSilentMs = 500;
constexpr size_t kMostReasons = 4;

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
  for (const int r : missing) wait.missing.set(static_cast<size_t>(team.domain_rank(r)));
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
  Waits waits(member.arena_ptr());
  const std::vector<Waits::Link> ring = waits.ring(member.rank(), place_);
  if (ring.empty()) return false;
  Boards& boards = waits.boards();
  std::string what = "calls wait for each other: ";
  for (size_t i = 0; i < ring.size(); ++i)
    what += text(i == 0 ? "" : ", ", boards.describe(*ring[i].wait, ring[i].rank), " for ",
                 boards.rank_text(*ring[i].wait, ring[(i + 1) % ring.size()].rank));
  if (!waits.stand_still()) return false;
  for (const Waits::Link& link : ring) {
    const Boards::Members* const found = boards.find(link.wait->board);
    if (found == nullptr) continue;
    Error error(Code::mismatch, what);
    error.op = link.wait->counter != 0 ? "counter" : name(link.wait->op);
    found->board->break_with(error, std::max(0, found->rank_of[static_cast<size_t>(member.rank())]));
    for (int r = 0; r < found->board->size(); ++r) member.wake(found->board->member(r).domain_rank);
  }
  return true;
}

std::vector<int> silent_ones(const Team& team, const std::vector<int>& ranks) {
  std::vector<int> silent;
  for (const int r : ranks)
    if (team.member().silent_ms(team.domain_rank(r)) >= kSilentMs) silent.push_back(r);
  return silent;
}

std::string held_up_by(const Team& team, const std::vector<int>& ranks) {
  const Member& member = team.member();
  Waits waits(member.arena_ptr());
  Boards& boards = waits.boards();
  std::vector<std::pair<int, std::string>> who;  // ranks of the domain, and their names
  for (const int r : ranks) who.push_back({team.domain_rank(r), team.rank_text(r)});
  std::string out;
  Ranks told;
  size_t reasons = 0;
  for (size_t i = 0; i < who.size() && reasons < kMostReasons; ++i) {
    const auto [rank, called] = who[i];
    if (told[static_cast<size_t>(rank)]) continue;
    told.set(static_cast<size_t>(rank));
    const int64_t silent = member.silent_ms(rank);
    if (silent >= kSilentMs) {
      out += text("; ", called, " has shown no sign of life for ", silent, " ms: is it stopped?");
      ++reasons;
      continue;
    }
    for (const Noticed& wait : waits.of(rank))
      for (int next = 0; next < member.size() && reasons < kMostReasons; ++next) {
        const auto bit = static_cast<size_t>(next);
        if (next == member.rank() || !wait.missing[bit] || !boards.still_absent(wait, rank, next)) continue;
        who.push_back({next, boards.rank_text(wait, next)});
        out += text("; ", called, " waits in ", boards.call_text(wait), " for ", who.back().second);
        ++reasons;
      }
  }
  return out;
}

}  // namespace gangway::host
