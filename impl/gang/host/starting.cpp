// Starting calls. A blocking one that needs no more than its peers' arrival ends here, without a queue or a
// work.
#include <sched.h>

#include <new>

#include "gang/host/calls.h"
#include "gang/host/core.h"
#include "gang/host/futex.h"
#include "gang/host/ticks.h"

namespace gangway::host {
namespace {

// Looks of a blocking call before it lets go of the mutex. With more ranks than cores the one waited for
// needs this very core.
constexpr int kLooks = 50;
constexpr int kCrowdedLooks = 4;
constexpr int64_t kYieldNs = 20'000;

// Gives the core away a few times under the mutex; the time counts as waited.
class Yields {
 public:
  explicit Yields(Works& rank) : rank_(rank) {}
  ~Yields() {
    if (start_ != 0) rank_.add_wait(now_ns() - start_);
  }
  Yields(const Yields&) = delete;
  Yields& operator=(const Yields&) = delete;

  // False: for so long that an abort or a deadline must not wait any more.
  bool yield() {
    const int64_t now = now_ns();
    if (start_ == 0) start_ = now;
    if (now - start_ > kYieldNs) return false;
    sched_yield();
    return true;
  }

 private:
  Works& rank_;
  int64_t start_ = 0;
};

}  // namespace

WorkPtr Core::run(Channel channel, std::span<const Collective> span) {
  enter(channel, span.empty() ? nullptr : span.data());
  const std::lock_guard lock(mutex_);
  if (error_) throw *error_;  // another thread broke the engine since enter: nobody would end this call
  std::shared_ptr<HostWork> work = new_work();
  start(*work, channel, span, nullptr);
  return work;
}

WorkPtr Core::run_now(Channel channel, std::span<const Collective> span) {
  enter(channel, span.empty() ? nullptr : span.data());
  std::unique_lock lock(mutex_);
  if (error_) throw *error_;  // another thread broke the engine since enter: nobody would end this call
  Op* met = nullptr;
  std::shared_ptr<HostWork> work;
  try {
    if (span.size() == 1 && active_.empty()) {
      Lane& lane = lane_of(channel, span[0]);
      met = begin(lane, channel, span[0]);
      if (meet(lane, *met)) {
        recycle(met);
        return nullptr;
      }
    }
    work = new_work();
  } catch (const Error& error) {
    break_here(error, true);
  } catch (const std::bad_alloc&) {
    break_here(Error(Code::out_of_memory, "no memory"), true);
  }
  if (error_) {
    if (met != nullptr) recycle(met);
    throw *error_;
  }
  start(*work, channel, span, met);
  const int looks = member_->crowded() ? kCrowdedLooks : kLooks;
  const bool over = look(*work, HostWork::kInput | HostWork::kFailed, looks);
  lock.unlock();
  if (over && !work->is_in(HostWork::kFailed)) return nullptr;
  return work;
}

void Core::start(HostWork& work, Channel channel, std::span<const Collective> span, Op* begun) {
  work.outputs_ = work.inputs_ = static_cast<int>(span.size());
  if (span.empty()) work.state_.store(HostWork::kOutput | HostWork::kInput, std::memory_order_release);
  try {
    for (const Collective& c : span) {
      Lane& lane = lane_of(channel, c);
      Op* const op = begun != nullptr ? begun : begin(lane, channel, c);
      if (begun == nullptr) note_start(*op);
      op->work = &work;
      enqueue(lane, op);
    }
    turn();
    if (outstanding_ > 0 && !listed_) {
      owner_->add(shared_from_this());
      listed_ = true;
    }
  } catch (const std::bad_alloc&) {  // half of the span may be on its way: peers must not wait for the rest
    break_here(Error(Code::out_of_memory, "no memory"), true);
    keep_first(work.error_, *error_);
    work.enter(HostWork::kFailed);
  }
}

Op* Core::begin(Lane& lane, Channel channel, const Collective& c) {
  Op* const op = new_op();
  op->c = c;
  op->channel = channel;
  prepare(*op, c, rank_, size_);
  op->sequence = lane.sequence++;
  op->fingerprint = fingerprint(*op, lane.history, size_);
  if (lane.peer < 0) lane.history = op->fingerprint;
  traffic_.calls += 1;
  return op;
}

bool Core::meet(Lane& lane, Op& op) {
  const bool published = publish_op(lane, op);
  note_start(op);  // in the shadow of the peers' arrival
  if (!published || op.source == Source::direct || op.source == Source::staged) return false;
  wake_peers();
  Yields yields(*owner_);
  const bool crowded = member_->crowded();
  for (int i = 0; i < kLooks; ++i) {
    if (crowded && i >= kCrowdedLooks) {
      if (!yields.yield()) break;
    } else if (i >= kEager) {
      pause_cpu();
    }
    int moves = 0;
    while (moves < kMoves && step(lane, op)) ++moves;
    if (moves == kMoves) break;  // too long for one hold of the mutex
    if (!op.done || op.in_place_on_peers) continue;
    wake_peers();
    Flight& flight = flights_[op.flight % kFlights];
    const bool at_once = i < kEager && flight.bytes <= kSmall;  // its one stamp says enough
    flight.end = at_once ? flight.start : ticks();
    return true;
  }
  return false;
}

}  // namespace gangway::host
