#include "gpu_emulation/queue.h"

#include <chrono>
#include <thread>
#include <utility>

#include "gpu_emulation/emulator.h"

namespace gpu_emulation {
namespace {

constexpr int kPauseOneIn = 16;
constexpr int kLongestPause = 200;  // microseconds

}  // namespace

void Point::reach() {
  const std::lock_guard lock(mutex_);
  reached_ = true;
  changed_.notify_all();
}
bool Point::reached() const {
  const std::lock_guard lock(mutex_);
  return reached_;
}
void Point::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_; });
}

void Queue::push(std::function<void(Runner&)> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  ++open_;
  if (!started_) std::thread([self = shared_from_this()] { self->run(); }).detach();
  started_ = true;
  changed_.notify_all();
}

bool Queue::idle() const {
  const std::lock_guard lock(mutex_);
  return open_ == 0;
}
void Queue::drain() {
  thread_local Runner runner;
  std::unique_lock lock(mutex_);
  while (open_ != 0) {
    if (busy_ || tasks_.empty())
      changed_.wait(lock);
    else
      run_first(lock, runner);
  }
}
void Queue::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

void Queue::run() {
  Runner runner;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !busy_ && (!tasks_.empty() || ending_); });
    if (tasks_.empty()) return;
    run_first(lock, runner);
  }
}

void Queue::run_first(std::unique_lock<std::mutex>& lock, Runner& runner) {
  busy_ = true;
  std::function<void(Runner&)> task = std::move(tasks_.front());
  tasks_.pop_front();
  // One task runs at a time, so random_ is its own. Settings have the runtime's lock, under which a queue's is taken.
  lock.unlock();
  const bool pause = settings().seed > 1 && random_() % kPauseOneIn == 0;
  const auto length = std::chrono::microseconds(random_() % kLongestPause);
  if (pause) std::this_thread::sleep_for(length);
  task(runner);
  task = nullptr;  // what it held may end here
  lock.lock();
  busy_ = false;
  --open_;
  changed_.notify_all();
}

}  // namespace gpu_emulation
