#include "gang/host/failure.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "gang/host/call/awaited.h"
#include "gang/host/call/reasons.h"
#include "gang/host/presence/thread_exit.h"

namespace gangway::host {
namespace {

std::string milliseconds(int64_t ns) {
  char out[32];
  std::snprintf(out, sizeof out, "%.1f ms", static_cast<double>(ns) / 1e6);
  return out;
}

}  // namespace

Failure::Failure(Team& team, Calls& calls, std::mutex& mutex, int64_t timeout_ms)
    : team_(team), calls_(calls), mutex_(mutex), timeout_ms_(timeout_ms) {}

void Failure::raise() const {
  const std::lock_guard lock(mutex_);
  throw *error_;
}

std::optional<Error> Failure::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool Failure::check(const HostWork* work, const char* call, bool asleep) {
  if (failed()) return true;
  const uint32_t losses = team_.member().losses();
  const bool gone = work != nullptr && team_.board().header().gone.load(std::memory_order_acquire) != 0;
  const bool threads = asleep && work != nullptr && team_.arena().threads();
  const bool news = team_.board().broken() || losses != losses_seen_.load(std::memory_order_relaxed);
  if (!news && !gone && !threads) return false;
  const std::lock_guard lock(mutex_);
  if (error_) return true;
  const Op* const op = work == nullptr ? nullptr : blocker(calls_.lanes(), *work);
  if (const auto why = why_broken(team_, op, call)) {
    break_with(*why, false);
    return true;
  }
  losses_seen_.store(losses, std::memory_order_relaxed);
  if (op == nullptr || (!gone && !threads)) return false;
  // A call may still end with what a rank published before it left, so a rank counts as absent only if no
  // call makes progress any more.
  if (moves_on()) return failed();
  const Op* const left = blocker(calls_.lanes(), *work);
  return left != nullptr && check_absent(*left);
}

// Drives the calls and returns whether any made progress. Also returns true if the engine broke.
bool Failure::moves_on() {
  const uint64_t before = calls_.moves();
  try {
    calls_.turn();
    return calls_.moves() != before;
  } catch (const Error& error) {
    break_with(error, true);
  } catch (const std::bad_alloc&) {
    break_with(Error(Code::out_of_memory, "no memory"), true);
  }
  return true;
}

// Breaks the engine if the call waits for a rank that has left for good. Returns whether it did.
bool Failure::check_absent(const Op& op) {
  const Lanes& lanes = calls_.lanes();
  const Op* first = &op;  // the call that waiting_for() examines
  while (const Op* const before = lanes.holder(*first)) first = before;
  // Reads first which ranks and threads have ended, and only then which ranks are awaited. Otherwise a rank
  // that arrives, finishes and leaves between the two reads would count as awaited and absent.
  const std::vector<int64_t> ended_ns = thread_ends_ns(team_);
  std::vector<Mark> marks;
  for (int r = 0; r < team_.size(); ++r) marks.push_back(team_.board().mark_of(r));
  const std::vector<int> absent = waiting_for(team_, lanes, op, true);
  int left = -1, leaving = -1;
  int64_t left_ns = INT64_MAX;
  for (const int r : waiting_for(team_, lanes, op, false)) {
    const Mark mark = marks[static_cast<size_t>(r)];
    const int64_t marked_ns = team_.board().member(r).marked_ns.load(std::memory_order_relaxed);
    const bool absent_yet = std::find(absent.begin(), absent.end(), r) != absent.end();
    const bool gone =
        mark == Mark::gone || (mark == Mark::draining && absent_yet && !will_begin(team_, *first, r));
    if (gone && marked_ns < left_ns) left = r, left_ns = marked_ns;
    if (absent_yet && (mark == Mark::leaving || mark == Mark::left)) leaving = r;
    notice_thread_exit(team_, r, ended_ns[static_cast<size_t>(r)], calls_.flight_recorder().begun_ns(op),
                       timeout_ms_);
  }
  if (left >= 0) {
    break_with(left_error(team_, op, left), true);
  } else if (leaving >= 0) {
    break_with(shutdown_error(team_, op, leaving), true);
  }
  return left >= 0 || leaving >= 0;
}

void Failure::break_with(const Error& error, bool tell_peers) noexcept {
  if (error_) return;
  keep_first(error_, error);
  // If the board already has an error, it replaces this one. A PEER_LOST stays, because it names the call.
  if (tell_peers && !team_.board().break_with(error, team_.rank()) && error.code() != Code::peer_lost) {
    try {
      if (auto first = why_broken(team_, nullptr, "")) error_ = std::move(first);
    } catch (const std::bad_alloc&) {  // keeps this rank's own error, which is true as well
    }
  }
  give_up();
  log_flight_record();  // before the calls forget which ranks they wait for
  calls_.fail(*error_);
  team_.wake_all();
}

// Publishes that this rank fails its calls, before any of its threads can see the failure and reuse the
// memory of its calls.
void Failure::give_up() noexcept {
  if (calls_.lanes().outstanding() > 0) {
    team_.board().member(team_.rank()).given_up.store(1, std::memory_order_release);
    team_.board().header().given_up.store(1, std::memory_order_seq_cst);
    // Orders the store before the caller's next writes to that memory.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  failed_.store(true, std::memory_order_release);
}

void Failure::log_flight_record() const noexcept {
  constexpr size_t kLogged = 16;
  const int rank = team_.rank();
  try {
    log(LogLevel::error, text("rank ", rank, ": ", error_->message()));
    const std::vector<FlightEntry> all = calls_.flight_record(error_);
    for (size_t i = all.size() - std::min(all.size(), kLogged); i < all.size(); ++i) {
      const FlightEntry& f = all[i];
      const std::string end = f.end_ns < 0 ? "" : text(" to ", milliseconds(f.end_ns));
      log(LogLevel::error, text("rank ", rank, ": ", team_.label(), ".", name(f.op), " #", f.sequence, ", ",
                                f.bytes, " bytes, from ", milliseconds(f.start_ns), end, ": ", f.state));
    }
  } catch (const std::bad_alloc&) {  // the error itself is kept
  }
}

void Failure::leave(Mark mark) noexcept {
  if (mark == Mark::draining) tell_calls(team_, calls_.lanes());
  team_.board().mark(mark);
  if (mark == Mark::gone && !error_) {
    try {
      error_ = team_.shaped(Error(Code::invalid_state, team_.label() + ": was released"), "", -1);
    } catch (const std::bad_alloc&) {
      keep_first(error_, Error(Code::invalid_state, "was released"));
    }
    give_up();
    calls_.fail(*error_);
  }
  team_.wake_peers();
}

}  // namespace gangway::host
