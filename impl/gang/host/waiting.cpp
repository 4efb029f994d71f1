#include "gang/host/waiting.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/interrupt.h"
#include "gang/host/call/awaited.h"
#include "gang/host/call/reasons.h"
#include "gang/host/cycle.h"
#include "gang/host/memory/futex.h"
#include "gang/host/presence/thread_exit.h"

namespace gangway::host {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int kSpins = 2000;
constexpr int64_t kYieldNs = kMillisecond;
constexpr int64_t kSleepNs = 20 * kMillisecond;
constexpr int64_t kAskNs = 50 * kMillisecond;  // the period of calls of the interrupt hook while data moves
constexpr int64_t kCycleNs = 50 * kMillisecond;
// The period of what takes time for every rank: looking for threads that have ended, and for a cycle. A call
// of W ranks wakes a sleeping thread up to W times, and a look each time would take W * W in each of W
// threads.
constexpr int64_t kLookNs = 20 * kMillisecond;

class WorkWait final : public Waitable {
 public:
  WorkWait(Core& core, HostWork& work, uint32_t states) : core_(core), work_(work), states_(states) {}

  bool ready(int turns) override { return work_.is_in(states_) || core_.drive(work_, states_, turns); }
  const HostWork* work() const override { return &work_; }
  std::vector<int> missing() override {
    const std::lock_guard lock(core_.mutex());
    const Lanes& lanes = core_.calls().lanes();
    const Op* const op = blocker(lanes, work_);
    return op == nullptr ? std::vector<int>() : host::missing(core_.team(), lanes, *op);
  }
  std::string what() override {
    const std::lock_guard lock(core_.mutex());
    const Op* const op = blocker(core_.calls().lanes(), work_);
    return op == nullptr ? core_.team().label() : call_text(core_.team(), *op);
  }

 private:
  Core& core_;
  HostWork& work_;
  const uint32_t states_;
};

class CounterWait final : public Waitable {
 public:
  CounterWait(Core& core, const std::atomic<uint64_t>& counter, uint64_t at_least, int owner,
              const char* what)
      : core_(core), counter_(counter), at_least_(at_least), owner_(owner), what_(what) {}

  bool ready(int) override { return published() || core_.failure().failed(); }
  std::vector<int> missing() override { return published() ? std::vector<int>() : std::vector<int>{owner_}; }
  std::string what() override { return text(core_.team().label(), ".", what_); }
  const char* op() const override { return what_; }
  uint64_t counter_offset() const override {
    return core_.team().arena().offset_of(&counter_, sizeof counter_);
  }
  uint64_t counter_value() const override { return at_least_; }

 private:
  bool published() const { return counter_.load(std::memory_order_acquire) >= at_least_; }

  Core& core_;
  const std::atomic<uint64_t>& counter_;
  const uint64_t at_least_;
  const int owner_;
  const char* const what_;
};

class LeaveWait final : public Waitable {
 public:
  explicit LeaveWait(Core& core) : core_(core) {}

  // The mark tells peers that this rank begins no more calls, so calls that still wait for a slot must be
  // published first.
  bool ready(int) override {
    if (core_.failure().failed()) return true;
    const std::lock_guard lock(core_.mutex());
    core_.turn();
    if (core_.calls().lanes().outstanding() != 0) return false;
    if (!marked_) {
      core_.team().board().mark(Mark::leaving);
      core_.team().wake_peers();
      marked_ = true;
    }
    return missing().empty();
  }
  std::vector<int> missing() override {
    std::vector<int> ranks;
    for (int r = 0; r < core_.team().size(); ++r) {
      if (r == core_.team().rank()) continue;
      const Mark mark = core_.team().board().mark_of(r);
      if (mark == Mark::here || mark == Mark::gone || mark == Mark::draining) ranks.push_back(r);
    }
    return ranks;
  }
  std::string what() override { return core_.team().label() + ".shutdown"; }
  const char* op() const override { return "shutdown"; }

 private:
  Core& core_;
  bool marked_ = false;
};

// Breaks the engine if a wait other than for a call waits for a rank that has left. Returns whether it did.
bool departed(Core& core, Waitable& what) {
  const Team& team = core.team();
  if (what.work() != nullptr || team.board().header().gone.load(std::memory_order_acquire) == 0) return false;
  for (const int r : what.missing()) {
    const Mark mark = team.board().mark_of(r);
    if (mark == Mark::here || what.ready(1)) continue;
    // The rank may have entered the same shutdown after missing() had read its mark.
    if (std::string_view(what.op()) == "shutdown" && (mark == Mark::leaving || mark == Mark::left)) continue;
    const bool lost = team.board().has_left(r);
    const std::string why = text(what.what(), ": ", team.name_of(r),
                                 lost ? " left without shutdown; " : " has shut down; ", team.alive_text(r));
    const std::lock_guard lock(core.mutex());
    core.failure().break_with(team.shaped(Error(Code::peer_lost, why), what.op(), r), lost);
    return true;
  }
  return false;
}

// The later phases of a wait, and how long it has lasted.
class LongWait {
 public:
  LongWait(Core& core, Waitable& what, Deadline deadline)
      : core_(core),
        what_(what),
        deadline_(deadline),
        start_(now_ns()),
        asked_(start_),
        moves_(core.calls().moves()),
        notice_(core) {}
  ~LongWait() {
    core_.owner().add_wait(now_ns() - start_);  // the spins before it are too short to count
  }
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

  // Yields the processor after each turn, until nothing has moved for a while. Returns whether the wait is
  // over.
  bool yield_phase() {
    const int turns = core_.team().member().crowded() ? 1 : kTurns;
    for (int64_t moved_at = now_ns(), now = moved_at; now - moved_at < kYieldNs; now = now_ns()) {
      if (over(turns, false)) return true;
      core_.owner().progress();
      if (now - asked_ >= kAskNs) ask(now);
      give_up(now);
      if (moved())
        moved_at = now;
      else
        sched_yield();
    }
    return false;
  }

  // Sleeps until the doorbell rings. Returns whether the wait is over.
  bool sleep_phase() {
    Member& member = core_.team().member();
    const bool looks = now_ns() - looked_ >= kLookNs;
    if (looks && what_.work() == nullptr && core_.team().arena().threads()) notice_thread_exits();
    const uint32_t doorbell = member.prepare_sleep();
    const uint64_t before = core_.calls().moves();
    bool ended = over(1, looks);
    if (!ended) {
      core_.owner().progress();
      ended = what_.ready(1);
    }
    // A call that has moved may be able to move further, and nobody rings the doorbell for that.
    if (!ended && core_.calls().moves() == before)
      member.sleep(doorbell, std::min(kSleepNs, deadline_.left_ms(20) * kMillisecond + 100'000));
    member.end_sleep();
    if (ended) return true;
    const int64_t now = now_ns();
    ask(now);
    give_up(now);
    if (!looks) return false;
    looked_ = now;
    if (now - start_ <= kCycleNs || !deadline_.is_never()) return false;
    notice_.publish(what_);
    return notice_.break_ring() && core_.failure().check(what_.work(), what_.op());
  }

 private:
  bool over(int turns, bool asleep) {
    return what_.ready(turns) || core_.failure().check(what_.work(), what_.op(), asleep) ||
           departed(core_, what_);
  }

  void notice_thread_exits() {
    const std::vector<int64_t> ends_ns = thread_ends_ns(core_.team());
    for (const int r : what_.missing())
      notice_thread_exit(core_.team(), r, ends_ns[static_cast<size_t>(r)], start_, core_.timeout_ms());
  }

  void ask(int64_t now) {
    asked_ = now;
    poll_interrupt();
  }

  bool moved() { return moves_ != std::exchange(moves_, core_.calls().moves()); }

  void give_up(int64_t now) {
    const int64_t timeout_ms = core_.timeout_ms();
    const bool too_long = timeout_ms >= 0 && now - start_ >= timeout_ms * kMillisecond;
    if (!too_long && !deadline_.passed()) return;
    if (what_.ready(1)) return;  // checked before the deadline, because this process may have been stopped
    if (deadline_.passed())
      fail(Code::not_ready, what_.what(), ": not ready; waiting for ",
           core_.team().ranks_text(what_.missing()));
    std::vector<int> late = what_.missing();
    // The other ranks are late because these do not run.
    if (std::vector<int> silent = silent_ones(core_.team(), late); !silent.empty()) late = std::move(silent);
    const std::string message =
        text(what_.what(), ": ", core_.team().ranks_text(late), " did not come within ", timeout_ms, " ms",
             held_up_by(core_.team(), late));
    const std::lock_guard lock(core_.mutex());
    core_.failure().break_with(core_.team().shaped(Error(Code::timeout, message), what_.op(), -1), true);
  }

  Core& core_;
  Waitable& what_;
  const Deadline deadline_;
  const int64_t start_;
  int64_t asked_;
  int64_t looked_ = 0;
  uint64_t moves_;
  WaitNotice notice_;
};

void block(Core& core, Waitable& what, Deadline deadline) {
  poll_interrupt_throttled();  // a call with many short waits may last long
  const bool crowded = core.team().member().crowded();
  const int rounds = crowded ? 1 : kSpins / kTurns;
  const int turns = crowded ? kCrowdedTurns : kTurns;
  const uint64_t few = core.calls().moves() + kMoves;  // more moves take long enough for LongWait to count
  for (int i = 0; i < rounds && core.calls().moves() < few; ++i)
    if (what.ready(turns) || core.failure().check(what.work(), what.op())) return;
  LongWait wait(core, what, deadline);
  while (!wait.yield_phase() && !wait.sleep_phase()) {
  }
}

}  // namespace

void BlockingCore::wait(HostWork& work, uint32_t states, Deadline deadline) {
  if (team().member().forked())
    fail(Code::forked, team().label(), ": a work cannot be waited for after fork");
  team().member().register_thread();
  WorkWait wait(*this, work, states);
  block(*this, wait, deadline);
  if (!work.is_in(states)) failure().raise();  // the engine has just broken, and its calls are being failed
}

void BlockingCore::wait_for_counter(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner,
                                    const char* what) {
  enter(Channel::control, nullptr, what);
  if (counter.load(std::memory_order_acquire) >= at_least) return;
  CounterWait wait(*this, counter, at_least, owner, what);
  block(*this, wait, Deadline::never());
  if (counter.load(std::memory_order_acquire) < at_least) failure().raise();
}

void BlockingCore::publish_counter(std::atomic<uint64_t>& counter, uint64_t value) {
  enter(Channel::control, nullptr, "publish");
  counter.exchange(value, std::memory_order_seq_cst);
  team().wake_peers();
  team().member().wake(team().member().rank());
}

void BlockingCore::shut_down(Deadline deadline) {
  enter(Channel::control, nullptr, "shutdown");
  LeaveWait wait(*this);
  try {
    block(*this, wait, deadline);
  } catch (const Error& error) {
    if (error.code() != Code::not_ready) throw;
    const std::string why = text(team().label(), ".shutdown: ", team().ranks_text(wait.missing()),
                                 " did not come in time", held_up_by(team(), wait.missing()));
    const std::lock_guard lock(mutex());
    failure().break_with(team().shaped(Error(Code::timeout, why), "shutdown", -1), true);
  }
  set_shut_down();
}

}  // namespace gangway::host
