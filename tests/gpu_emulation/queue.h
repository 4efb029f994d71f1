// One stream: a queue of tasks, which its thread runs late, in order, with random pauses. A thread that waits
// for the stream also runs tasks, so that it need not wait until the other thread wakes up.
//
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>

#include "gpu_emulation/block.h"
#include "gpu_emulation/log.h"

namespace gpu_emulation {

// Moves the clock of events, which also moves by a microsecond when a point is reached.
void pass_time(double milliseconds);

// A point in a queue for which others wait.
class Point {
 public:
  void reach();
  double milliseconds() const;  // by the clock of events, when it was reached
  bool reached() const;
  void wait() const;
  const uint64_t number = next_event();  // in the log

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
  int64_t nanoseconds_ = 0;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  using Task = std::function<void(Runner&)>;

  Queue(int device, uint32_t seed) : device_(device), random_(seed) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return device_; }
  // A task receives its thread's runner of kernels.
  void push(Task task);
  bool idle() const;
  void drain();  // blocks until every task has ended
  void end();    // no more tasks will come; queued tasks still run

 private:
  void run();
  void run(std::unique_ptr<Task> task, Runner& runner);
  // Waits until no task runs, and returns the next one. Returns null if all have ended (draining), or if no
  // more will come (not draining).
  std::unique_ptr<Task> next(bool draining);

  const int device_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::unique_ptr<Task>> tasks_;
  size_t open_ = 0;  // tasks that have not ended
  bool started_ = false, ending_ = false, busy_ = false;
  std::minstd_rand random_;
};

}  // namespace gpu_emulation
