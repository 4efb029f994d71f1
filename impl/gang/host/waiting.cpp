// Waiting: pause a little, then give the core away, then sleep on the rank's bell. Every turn drives all
// outstanding calls of the rank; a clock is read only after the first phase.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/interrupt.h"
#include "gang/host/calls.h"
#include "gang/host/futex.h"
#include "gang/host/waiting.h"

namespace gangway::host {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int kSpins = 2000;
constexpr int kTurns = 50;        // looks under one hold of the mutex
constexpr int kCrowdedSpins = 4;  // with more ranks than cores the one waited for needs this very core
constexpr int64_t kYieldNs = kMillisecond;
constexpr int64_t kNapNs = 20 * kMillisecond;
constexpr int64_t kAskNs = 50 * kMillisecond;  // between questions to the interrupt hook while data moves
constexpr int64_t kCycleNs = 50 * kMillisecond;

}  // namespace

class Core::WorkWait final : public Core::Waitable {
 public:
  WorkWait(Core& core, HostWork& work, uint32_t want)
      : core_(core), work_(work), want_(want | HostWork::kFailed) {}

  bool ready(int turns) override { return is_over() || core_.drive(work_, want_, turns); }
  const HostWork* work() const override { return &work_; }
  std::vector<int> missing() override {
    const std::lock_guard lock(core_.mutex_);
    const Op* const op = core_.blocker(work_);
    return op == nullptr ? std::vector<int>() : core_.missing(*op);
  }
  std::string what() override {
    const std::lock_guard lock(core_.mutex_);
    const Op* const op = core_.blocker(work_);
    return op == nullptr ? core_.options_.label : core_.call_text(*op);
  }

 private:
  bool is_over() const { return (work_.state_.load(std::memory_order_acquire) & want_) != 0; }

  Core& core_;
  HostWork& work_;
  const uint32_t want_;
};

class Core::CounterWait final : public Core::Waitable {
 public:
  CounterWait(Core& core, const std::atomic<uint64_t>& counter, uint64_t at_least, int owner,
              const char* what)
      : core_(core), counter_(counter), at_least_(at_least), owner_(owner), what_(what) {}

  bool ready(int) override { return counter_.load(std::memory_order_acquire) >= at_least_ || core_.failed(); }
  std::vector<int> missing() override { return {owner_}; }
  std::string what() override { return text(core_.options_.label, ".", what_); }
  const char* op() const override { return what_; }
  uint64_t counter_offset() const override { return core_.arena_.offset_of(&counter_, sizeof counter_); }
  uint64_t counter_value() const override { return at_least_; }

 private:
  Core& core_;
  const std::atomic<uint64_t>& counter_;
  const uint64_t at_least_;
  const int owner_;
  const char* const what_;
};

class Core::LeaveWait final : public Core::Waitable {
 public:
  explicit LeaveWait(Core& core) : core_(core) {}

  // A peer takes a mark for "nothing more will come", so calls that still wait for a slot go first.
  bool ready(int) override {
    if (core_.failed()) return true;
    const std::lock_guard lock(core_.mutex_);
    core_.turn();
    if (core_.outstanding_ != 0) return false;
    if (!marked_) {
      core_.board_->mark(Mark::leaving);
      for (const int r : core_.others_) core_.member_->wake(r);
      marked_ = true;
    }
    return missing().empty();
  }
  std::vector<int> missing() override {
    std::vector<int> ranks;
    for (int r = 0; r < core_.size_; ++r) {
      if (r == core_.rank_) continue;
      const auto mark = static_cast<Mark>(core_.board_->member(r).mark.load(std::memory_order_acquire));
      if (mark == Mark::here || mark == Mark::gone || mark == Mark::fading) ranks.push_back(r);
    }
    return ranks;
  }
  std::string what() override { return core_.options_.label + ".shutdown"; }
  const char* op() const override { return "shutdown"; }

 private:
  Core& core_;
  bool marked_ = false;
};

// A wait that is no call: whoever is gone will not come.
bool Core::departed(Waitable& what) {
  if (what.work() != nullptr || board_->header().gone.load(std::memory_order_acquire) == 0) return false;
  for (const int r : what.missing()) {
    const auto mark = static_cast<Mark>(board_->member(r).mark.load(std::memory_order_acquire));
    if (mark == Mark::here || what.ready(1)) continue;
    // It came to the same shutdown since missing() looked.
    if (std::string_view(what.op()) == "shutdown" && (mark == Mark::leaving || mark == Mark::left)) continue;
    const bool lost = board_->has_left(r);
    const std::lock_guard lock(mutex_);
    break_here(shaped(Error(Code::peer_lost,
                            text(what.what(), ": ", name_of(r),
                                 lost ? " left without shutdown; " : " has shut down; ", alive_text(r))),
                      what.op(), r),
               lost);
    return true;
  }
  return false;
}

// The later phases of a wait: how long it has lasted, whether anything moves.
class Core::Patience {
 public:
  Patience(Core& core, Waitable& what, Deadline deadline)
      : core_(core),
        what_(what),
        deadline_(deadline),
        start_(now_ns()),
        asked_(start_),
        moves_(core.moves_.load()) {}
  ~Patience() {
    if (published_) core_.clear_wait();
    core_.owner_->add_wait(now_ns() - start_);  // the spins before are too short to count
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // Gives the core away turn by turn until nothing has moved for a while. True: over.
  bool yields() {
    const int turns = core_.member_->crowded() ? 1 : kTurns;
    for (int64_t moved_at = now_ns(), now = moved_at; now - moved_at < kYieldNs; now = now_ns()) {
      if (what_.ready(turns) || core_.check(what_.work(), what_.op()) || core_.departed(what_)) return true;
      core_.owner_->progress();
      if (now - asked_ >= kAskNs) ask(now);
      give_up(now);
      if (moved())
        moved_at = now;
      else
        sched_yield();
    }
    return false;
  }

  // Sleeps until somebody rings. True: over.
  bool nap() {
    if (what_.work() == nullptr && core_.arena_.threads())
      for (const int r : what_.missing()) core_.notice_thread_exit(r, start_);
    const uint32_t bell = core_.member_->lie_down();
    const uint64_t before = core_.moves_.load(std::memory_order_relaxed);
    bool over = what_.ready(1) || core_.check(what_.work(), what_.op(), true) || core_.departed(what_);
    if (!over) {
      core_.owner_->progress();
      over = what_.ready(1);
    }
    // What has moved may move on, and nobody rings for that.
    if (!over && core_.moves_.load(std::memory_order_relaxed) == before)
      core_.member_->nap(bell, std::min(kNapNs, deadline_.left_ms(20) * kMillisecond + 100'000));
    core_.member_->get_up();
    if (over) return true;
    const int64_t now = now_ns();
    ask(now);
    give_up(now);
    if (now - start_ <= kCycleNs || !deadline_.is_never() || core_.member_->attending() != 1) return false;
    core_.publish_wait(what_);
    published_ = true;
    return core_.break_cycle() && core_.check(what_.work(), what_.op());
  }

 private:
  void ask(int64_t now) {
    asked_ = now;
    poll_interrupt();
  }

  bool moved() { return moves_ != std::exchange(moves_, core_.moves_.load(std::memory_order_relaxed)); }

  void give_up(int64_t now) {
    if (deadline_.passed())
      fail(Code::not_ready, what_.what(), ": not ready; waiting for ", ranks_text(what_.missing()));
    if (core_.options_.timeout_ms < 0 || now - start_ < core_.options_.timeout_ms * kMillisecond) return;
    const std::string message = text(what_.what(), ": ", ranks_text(what_.missing()), " did not come within ",
                                     core_.options_.timeout_ms, " ms");
    const std::lock_guard lock(core_.mutex_);
    core_.break_here(core_.shaped(Error(Code::timeout, message), what_.op(), -1), true);
  }

  Core& core_;
  Waitable& what_;
  const Deadline deadline_;
  const int64_t start_;
  int64_t asked_;
  uint64_t moves_;
  bool published_ = false;
};

void Core::block(Waitable& what, Deadline deadline) {
  poll_interrupt_at_times();  // a call of many short waits may be a long one
  const int rounds = member_->crowded() ? 1 : kSpins / kTurns;
  const int turns = member_->crowded() ? kCrowdedSpins : kTurns;
  const uint64_t few = moves_.load(std::memory_order_relaxed) + kMoves;  // more take time, which is counted
  for (int i = 0; i < rounds && moves_.load(std::memory_order_relaxed) < few; ++i)
    if (what.ready(turns) || check(what.work(), what.op())) return;
  Patience patience(*this, what, deadline);
  while (!patience.yields() && !patience.nap()) {
  }
}

// --- works ---------------------------------------------------------------------------------------------

bool HostWork::poll_for(uint32_t states) {
  if (is_in(states)) return true;
  const auto core = core_.lock();
  if (core == nullptr || core->member_->forked()) return true;
  core->member_->attend();
  core->drive(*this, states, 1);
  if (is_in(states) || core->check(this, "")) return true;
  core->owner_->progress();
  return is_in(states);
}

void HostWork::wait(Deadline deadline) {
  if ((state_.load(std::memory_order_acquire) & (kOutput | kFailed)) == 0) {
    if (const auto core = core_.lock()) {
      if (core->member_->forked())
        fail(Code::forked, core->options_.label, ": a work cannot be waited for after fork");
      core->member_->attend();
      Core::WorkWait what(*core, *this, kOutput);
      core->block(what, deadline);
      if (!is_in(kOutput | kFailed)) core->throw_error();  // broken a moment ago: its calls are being ended
    }
  }
  const uint32_t state = state_.load(std::memory_order_acquire);
  if ((state & kFailed) != 0 && (state & kOutput) == 0) throw *error_;
}

void HostWork::wait_input(Deadline deadline) {
  wait(deadline);
  if ((state_.load(std::memory_order_acquire) & (kInput | kFailed)) == 0) {
    if (const auto core = core_.lock()) {
      if (core->member_->forked())
        fail(Code::forked, core->options_.label, ": a work cannot be waited for after fork");
      Core::WorkWait what(*core, *this, kInput);
      core->block(what, deadline);
      if (!is_in(kInput | kFailed)) core->throw_error();
    }
  }
  const uint32_t state = state_.load(std::memory_order_acquire);
  if ((state & kFailed) != 0 && (state & kInput) == 0) throw *error_;
}

std::optional<Error> HostWork::error() const {
  const uint32_t state = state_.load(std::memory_order_acquire);
  if ((state & kFailed) != 0 && (state & kOutput) == 0) return error_;
  return std::nullopt;
}

// --- fences and the end

void Core::publish(std::atomic<uint64_t>& counter, uint64_t value) {
  enter(Channel::control, nullptr, "publish");
  counter.exchange(value, std::memory_order_seq_cst);
  for (const int r : others_) member_->wake(r);
  member_->wake(member_->rank());
}

void Core::wait_counter(const std::atomic<uint64_t>& counter, uint64_t at_least, int owner,
                        const char* what) {
  enter(Channel::control, nullptr, what);
  if (counter.load(std::memory_order_acquire) >= at_least) return;
  CounterWait wait(*this, counter, at_least, owner, what);
  block(wait, Deadline::never());
  if (counter.load(std::memory_order_acquire) < at_least) throw_error();
}

void Core::shutdown(Deadline deadline) {
  enter(Channel::control, nullptr, "shutdown");
  LeaveWait wait(*this);
  try {
    block(wait, deadline);
  } catch (const Error& error) {
    if (error.code() != Code::not_ready) throw;
    const std::lock_guard lock(mutex_);
    break_here(shaped(Error(Code::timeout, text(options_.label, ".shutdown: ", ranks_text(wait.missing()),
                                                " did not come in time")),
                      "shutdown", -1),
               true);
  }
  if (failed()) throw_error();
  board_->mark(Mark::left);
  const std::lock_guard lock(mutex_);
  shut_down_ = true;
}

void Core::release() noexcept {
  if (member_->forked()) return;
  {
    const std::lock_guard lock(mutex_);
    bool held = false;
    for (const auto& work : works_) held |= work.use_count() > 1 && !ended(*work);
    if (!shut_down_) leave(outstanding_ > 0 && held ? Mark::fading : Mark::gone);
    if (outstanding_ > 0 || !listed_) return;
    listed_ = false;
  }
  owner_->remove(this);  // or it would stay until the next long wait
}

void Core::end() noexcept {
  if (member_->forked()) return;
  const std::lock_guard lock(mutex_);
  if (outstanding_ > 0) leave(Mark::gone);
}

void Core::tell_calls() noexcept {
  for (const Lane& lane : channels_)
    line(lane.channel, rank_).calls.store(lane.sequence, std::memory_order_relaxed);
  for (const auto& lane : pairs_) {
    if (lane == nullptr) continue;
    auto& calls = lane->sending ? board_->pair(lane->channel, rank_, lane->peer).sends
                                : board_->pair(lane->channel, lane->peer, rank_).receives;
    calls.store(lane->sequence, std::memory_order_relaxed);
  }
}

void Core::leave(Mark mark) noexcept {
  if (mark == Mark::fading) tell_calls();
  board_->mark(mark);
  if (mark == Mark::gone && !error_) {
    try {
      error_ = shaped(Error(Code::invalid_state, options_.label + ": was released"), "", -1);
    } catch (const std::bad_alloc&) {
      keep_first(error_, Error(Code::invalid_state, "was released"));
    }
    give_up();
    fail_all();
  }
  for (const int r : others_) member_->wake(r);
}

}  // namespace gangway::host
