// The queue of one deferred stream: one thread runs its tasks late, in order.
//
// Thread rule: any thread, except the destructor, which waits for all tasks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "support/deferred/deferred.h"

namespace gangway::deferred {

class Queue {
 public:
  Queue(uint32_t seed, int threads) : random_(seed), threads_(threads) {}
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void push(std::function<void(Worker&)> task);
  bool idle() const;
  // Sets the sleep before each task; 0 means at random.
  void set_sleep(int microseconds) { sleep_ = microseconds; }
  // Blocks until every task has ended.
  void drain();
  // Calls drain(), then rethrows the first exception of a task, once.
  void synchronize();

 private:
  void run();
  void delay();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Worker&)>> tasks_;
  size_t open_ = 0;  // tasks that have not ended
  bool ending_ = false;
  std::atomic<int> sleep_ = 0;
  std::exception_ptr error_;
  std::minstd_rand random_;
  const int threads_;
  std::thread thread_;  // started by the first task
};

// A point that one queue reaches and that others wait for.
class Point {
 public:
  void reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }
  bool reached() const {
    const std::lock_guard lock(mutex_);
    return reached_;
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
};

}  // namespace gangway::deferred
