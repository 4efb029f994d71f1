#include "gang/host/call/work.h"

#include "gang/engine.h"

namespace gangway::host {
namespace {

constexpr size_t kWorks = 64;
constexpr size_t kTries = 4;  // how many entries of the pool are checked for one that can be reused

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
  const auto driver = driver_.lock();
  return driver == nullptr || driver->poll(*this, states);
}

void HostWork::wait(Deadline deadline) { wait_for(kOutput, deadline); }

void HostWork::wait_input(Deadline deadline) {
  wait_for(kOutput, deadline);
  wait_for(kInput, deadline);
}

void HostWork::wait_for(State end, Deadline deadline) {
  if (!is_in(end | kFailed))
    if (const auto driver = driver_.lock()) driver->wait(*this, end | kFailed, deadline);
  if (is_in(kFailed) && !is_in(end)) throw *error_;
}

std::optional<Error> HostWork::error() const {
  if (is_in(kFailed) && !is_in(kOutput)) return error_;
  return std::nullopt;
}

std::shared_ptr<HostWork>& WorkPool::take(Driver& driver) {
  for (size_t i = 0; i < works_.size() && i < kTries; ++i) {
    std::shared_ptr<HostWork>& work = works_[next_++ % works_.size()];
    if (work.use_count() != 1 || !work->ended()) continue;
    work->error_.reset();
    work->state_.store(0, std::memory_order_relaxed);
    return work;
  }
  auto work = std::make_shared<HostWork>();
  work->driver_ = driver.weak_from_this();
  // A call in flight points to its work, and this pool may be the only holder of it. So only a work that has
  // ended may leave the pool.
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
