#include "gang/host/core.h"

#include <sched.h>

#include <new>
#include <utility>

namespace gangway::host {

Core::Core(std::shared_ptr<Works> owner, std::shared_ptr<Member> member, std::unique_ptr<Board> board,
           int rank, int64_t timeout_ms, std::string label)
    : owner_(std::move(owner)),
      timeout_ms_(timeout_ms),
      team_(std::move(member), std::move(board), rank, std::move(label)),
      calls_(team_),
      failure_(team_, calls_, mutex_, timeout_ms_) {}

void Core::enter(Channel channel, const Collective* c, const char* call) {
  if (team_.member().forked())
    fail(Code::forked, team_.label(), ": rank ", team_.rank(),
         " was made before fork; a child of it has no gang");
  team_.member().register_thread();
  if (failure_.quiet()) {
    if (shut_down_) fail(Code::invalid_state, team_.label(), ": was shut down");
    return;
  }
  std::string numbered;
  if (c != nullptr) {
    const std::lock_guard lock(mutex_);
    numbered = text(name(c->op), " #", calls_.sequence(channel, *c));
  }
  if (failure_.check(nullptr, c != nullptr ? numbered.c_str() : call)) failure_.raise();
}

template <typename Step>
void Core::or_break(Step&& step) {
  try {
    step();
  } catch (const Error& error) {
    failure_.break_with(error, true);
  } catch (const std::bad_alloc&) {
    failure_.break_with(Error(Code::out_of_memory, "no memory"), true);
  }
}

WorkPtr Core::run(Channel channel, std::span<const Collective> span) {
  enter(channel, span.empty() ? nullptr : span.data());
  const std::lock_guard lock(mutex_);
  // Another thread may have broken the engine since enter().
  if (failure_.first_error()) throw *failure_.first_error();
  std::shared_ptr<HostWork> work = works_.take(*this);
  start(work, channel, span, nullptr);
  return work;
}

WorkPtr Core::run_now(Channel channel, std::span<const Collective> span) {
  enter(channel, span.empty() ? nullptr : span.data());
  std::unique_lock lock(mutex_);
  // Another thread may have broken the engine since enter().
  if (failure_.first_error()) throw *failure_.first_error();
  Op* begun = nullptr;
  bool met = false;
  std::shared_ptr<HostWork> work;
  or_break([&] {
    if (calls_.can_meet(span)) {
      calls_.begin(channel, span, begun);
      met = calls_.meet(begun, *owner_);
    }
    if (!met) work = works_.take(*this);
  });
  if (met) return nullptr;
  if (failure_.first_error()) {
    calls_.forget(begun);
    throw *failure_.first_error();
  }
  start(work, channel, span, begun);
  const int turns = team_.member().crowded() ? kCrowdedTurns : kTurns;
  bool over = false;
  or_break([&] { over = calls_.look(*work, HostWork::kInput | HostWork::kFailed, turns); });
  lock.unlock();
  if (over && !work->is_in(HostWork::kFailed)) return nullptr;
  return work;
}

// From `begun` on, those calls of the span are linked that have begun and not ended. Null: none has begun.
void Core::start(const std::shared_ptr<HostWork>& work, Channel channel, std::span<const Collective> span,
                 Op* begun) {
  if (begun != nullptr) span = {};
  size_t calls = span.size();
  for (const Op* op = begun; op != nullptr; op = op->next) ++calls;
  work->begin(static_cast<int>(calls));
  or_break([&] {
    while (begun != nullptr) calls_.enqueue(std::exchange(begun, begun->next), *work);
    for (const Collective& c : span) calls_.enqueue(calls_.begin(channel, c), *work);
    calls_.turn();
    if (calls_.lanes().outstanding() > 0 && !listed_) {
      owner_->add(std::static_pointer_cast<Core>(shared_from_this()));
      listed_ = true;
    }
  });
  // If the engine broke after some calls of the span had begun, the work must fail as a whole: neither the
  // peers nor the caller may wait for the other calls.
  if (failure_.first_error() && !work->ended()) work->fail(*failure_.first_error());
}

std::optional<Message> Core::probe(Channel channel, int peer) {
  enter(channel, nullptr, "probe");
  owner_->progress();
  const std::lock_guard lock(mutex_);
  // Another thread may have broken the engine since enter().
  if (failure_.first_error()) throw *failure_.first_error();
  Collective receive;
  receive.op = CollectiveOp::recv;
  receive.peer = peer;
  const Lane& lane = calls_.lanes().of(channel, receive);
  const Slot& slot = lane.line->slots[lane.sequence % kPairSlots];
  // Any other number is that of an earlier message in the slot, which this rank may not have drained yet.
  if (slot.arrived.load(std::memory_order_acquire) != lane.sequence + 1) return std::nullopt;
  return Message{static_cast<size_t>(slot.count), static_cast<DType>(slot.dtype)};
}

bool Core::poll(HostWork& work, uint32_t states) {
  if (team_.member().forked()) return true;
  team_.member().register_thread();
  drive(work, states, 1);
  if (work.is_in(states) || failure_.check(&work, "")) return true;
  owner_->progress();
  return work.is_in(states);
}

bool Core::progress() {
  if (team_.member().forked()) return true;
  if (aborts_.load(std::memory_order_relaxed) != 0) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // another thread drives the calls
  turn();
  if (calls_.lanes().outstanding() == 0) listed_ = false;
  return !listed_;
}

void Core::turn() {
  or_break([&] { calls_.turn(); });
}

bool Core::drive(HostWork& work, uint32_t states, int turns) {
  // Lets abort() take the mutex; otherwise this thread could take it again and again first.
  while (aborts_.load(std::memory_order_relaxed) != 0) sched_yield();
  const std::lock_guard lock(mutex_);
  or_break([&] { calls_.look(work, states, turns); });
  return work.is_in(states);
}

void Core::abort(const Error& error) noexcept {
  if (team_.member().forked()) return;
  aborts_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  aborts_.fetch_sub(1, std::memory_order_relaxed);
  try {
    failure_.break_with(team_.shaped(error, error.op.c_str(), error.peer), true);
  } catch (const std::bad_alloc&) {  // no memory to add the names of call and gang: the error stays as it is
    failure_.break_with(error, true);
  }
}

std::optional<Error> Core::error() {
  if (team_.member().forked()) return Error(Code::forked, team_.label() + ": made before fork");
  failure_.check(nullptr, "");
  return failure_.error();
}

void Core::set_shut_down() {
  if (failure_.failed()) failure_.raise();
  team_.board().mark(Mark::left);
  const std::lock_guard lock(mutex_);
  shut_down_ = true;
}

void Core::release() noexcept {
  if (team_.member().forked()) return;
  {
    const std::lock_guard lock(mutex_);
    const bool busy = calls_.lanes().outstanding() > 0;
    if (!shut_down_) failure_.leave(busy && works_.has_unended() ? Mark::draining : Mark::gone);
    if (calls_.lanes().outstanding() > 0 || !listed_) return;
    listed_ = false;
  }
  owner_->remove(this);  // otherwise it would stay on the list until the next long wait
}

void Core::end() noexcept {
  if (team_.member().forked()) return;
  const std::lock_guard lock(mutex_);
  if (calls_.lanes().outstanding() > 0) failure_.leave(Mark::gone);
}

Traffic Core::traffic() const {
  const std::lock_guard lock(mutex_);
  return calls_.traffic();
}

std::vector<FlightEntry> Core::flight_record() const {
  const std::lock_guard lock(mutex_);
  return calls_.flight_record(failure_.first_error());
}

}  // namespace gangway::host
