#include "gpu_emulation/queue.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "gpu_emulation/emulator.h"
#include "gpu_emulation/sanitizer.h"

namespace gpu_emulation {
namespace {

constexpr int kPauseOneIn = 16;
constexpr int kLongestPause = 200;  // microseconds

std::atomic<int64_t> now = 0;  // of the clock of events, in nanoseconds

}  // namespace

void pass_time(double milliseconds) { now += static_cast<int64_t>(1e6 * milliseconds); }

void Point::reach() {
  give(this);
  const Unseen unseen;
  const std::lock_guard lock(mutex_);
  nanoseconds_ = now += 1000;
  reached_ = true;
  changed_.notify_all();
}
double Point::milliseconds() const {
  const Unseen unseen;
  const std::lock_guard lock(mutex_);
  return static_cast<double>(nanoseconds_) / 1e6;
}
bool Point::reached() const {
  const bool now = [&] {
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    return reached_;
  }();
  if (now) take(this);
  return now;
}
void Point::wait() const {
  {
    const Unseen unseen;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }
  take(this);
}

void Queue::push(Task task) {
  auto kept = std::make_unique<Task>(std::move(task));
  give(kept.get());
  const bool first = [&] {
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(kept));
    ++open_;
    changed_.notify_all();
    return !std::exchange(started_, true);
  }();
  if (first) std::thread([self = shared_from_this()] { self->run(); }).detach();
}

bool Queue::idle() const {
  const bool now = [&] {
    const Unseen unseen;
    const std::lock_guard lock(mutex_);
    return open_ == 0;
  }();
  if (now) take(this);
  return now;
}
void Queue::drain() {
  thread_local Runner runner;
  while (auto task = next(true)) run(std::move(task), runner);
  take(this);
}
void Queue::end() {
  const Unseen unseen;
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void Queue::run() {
  Runner runner;
  while (auto task = next(false)) run(std::move(task), runner);
}

std::unique_ptr<Queue::Task> Queue::next(bool draining) {
  const Unseen unseen;
  std::unique_lock lock(mutex_);
  const auto done = [&] { return draining ? open_ == 0 : ending_ && !busy_ && tasks_.empty(); };
  changed_.wait(lock, [&] { return done() || (!busy_ && !tasks_.empty()); });
  if (done()) return nullptr;
  busy_ = true;
  auto task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

void Queue::run(std::unique_ptr<Task> task, Runner& runner) {
  take(task.get());
  take(this);  // given by the task before
  // One task runs at a time, so random_ needs no lock. settings() takes the runtime's lock, which must be
  // taken before a queue's lock, so this thread must not hold the queue's lock here.
  const bool pause = settings().seed > 1 && random_() % kPauseOneIn == 0;
  const auto length = std::chrono::microseconds(random_() % kLongestPause);
  if (pause) std::this_thread::sleep_for(length);
  (*task)(runner);
  task.reset();  // may destroy what the task owned
  give(this);
  const Unseen unseen;
  const std::lock_guard lock(mutex_);
  busy_ = false;
  --open_;
  changed_.notify_all();
}

}  // namespace gpu_emulation
