#include "support/deferred/queue.h"

#include <chrono>
#include <utility>

#include "device/cpu/cpu_device.h"

namespace gangway::deferred {
namespace {

constexpr int kDelayedOneIn = 16;
constexpr int kLongestDelay = 200;  // in microseconds

}  // namespace

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Queue::push(std::function<void(Worker&)> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  ++open_;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

bool Queue::idle() const {
  const std::lock_guard lock(mutex_);
  return open_ == 0;
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_ == 0; });
}

void Queue::synchronize() {
  drain();
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Queue::delay() {
  if (sleep_ != 0) return std::this_thread::sleep_for(std::chrono::microseconds(sleep_));
  if (random_() % kDelayedOneIn != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % kLongestDelay));
}

void Queue::run() {
  const std::shared_ptr<Device> cpu = cpu::make_cpu_device({.threads = threads_});
  const std::unique_ptr<Ops> ops = make_ops(cpu);
  Stack temporaries(cpu->allocator());
  Worker worker{*cpu, *ops, temporaries};
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !tasks_.empty() || ending_; });
    if (tasks_.empty()) return;
    std::function<void(Worker&)> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    delay();
    try {
      task(worker);
    } catch (...) {
      error = std::current_exception();
    }
    task = nullptr;  // frees what the task held, outside the lock
    lock.lock();
    if (!error_) error_ = error;
    if (--open_ == 0) changed_.notify_all();
  }
}

}  // namespace gangway::deferred
