#include "gang/host/work.h"

#include "gang/host/core.h"
#include "gang/host/waiting.h"

namespace gangway::host {
namespace {

constexpr size_t kWorks = 64;
constexpr size_t kTries = 4;  // places of the pool that a new work looks at

}  // namespace

void HostWork::begin(int calls) {
  outputs_ = inputs_ = calls;
  if (calls == 0) enter(kOutput | kInput);
}

void HostWork::output_ended() {
  if (--outputs_ == 0) enter(kOutput);
}

void HostWork::input_ended() {
  if (--inputs_ == 0) enter(kInput);
}

void HostWork::fail(const Error& error) noexcept {
  keep_first(error_, error);
  enter(kFailed);
}

bool HostWork::poll_for(uint32_t states) {
  if (is_in(states)) return true;
  const auto core = core_.lock();
  if (core == nullptr || core->team().member().forked()) return true;
  core->team().member().attend();
  core->drive(*this, states, 1);
  if (is_in(states) || core->failure().check(this, "")) return true;
  core->owner().progress();
  return is_in(states);
}

void HostWork::wait(Deadline deadline) { wait_for(kOutput, deadline); }

void HostWork::wait_input(Deadline deadline) {
  wait_for(kOutput, deadline);
  wait_for(kInput, deadline);
}

void HostWork::wait_for(State end, Deadline deadline) {
  if (!is_in(end | kFailed)) {
    if (const auto core = core_.lock()) {
      if (core->team().member().forked())
        gangway::fail(Code::forked, core->team().label(), ": a work cannot be waited for after fork");
      core->team().member().attend();
      wait_for_work(*core, *this, end | kFailed, deadline);
      if (!is_in(end | kFailed)) core->failure().raise();  // broken a moment ago: its calls are being ended
    }
  }
  if (is_in(kFailed) && !is_in(end)) throw *error_;
}

std::optional<Error> HostWork::error() const {
  if (is_in(kFailed) && !is_in(kOutput)) return error_;
  return std::nullopt;
}

std::shared_ptr<HostWork>& WorkPool::take(Core& core) {
  for (size_t i = 0; i < works_.size() && i < kTries; ++i) {
    std::shared_ptr<HostWork>& work = works_[next_++ % works_.size()];
    if (work.use_count() != 1 || !work->ended()) continue;
    work->error_.reset();
    work->state_.store(0, std::memory_order_relaxed);
    return work;
  }
  auto work = std::make_shared<HostWork>();
  work->core_ = core.weak_from_this();
  // Calls in flight point to their work, which only this list may hold: only an ended one leaves it.
  std::shared_ptr<HostWork>* place = nullptr;
  if (works_.size() >= kWorks) place = &works_[next_++ % works_.size()];
  if (place == nullptr || !(*place)->ended()) place = &works_.emplace_back();
  *place = std::move(work);
  return *place;
}

bool WorkPool::has_unended() const {
  for (const auto& work : works_)
    if (work.use_count() > 1 && !work->ended()) return true;
  return false;
}

}  // namespace gangway::host
