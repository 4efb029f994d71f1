// One stream: tasks in order, run late by its thread, with pauses at random. A thread that waits for the stream runs tasks
// too, which spares it the wait for the other thread to wake up.
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

// A point that a queue reaches and that others wait for.
class Point {
 public:
  void reach();
  bool reached() const;
  void wait() const;
  const uint64_t number = next_event();  // in the log

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool reached_ = false;
};

class Queue : public std::enable_shared_from_this<Queue> {
 public:
  using Task = std::function<void(Runner&)>;

  Queue(int device, uint32_t seed) : device_(device), random_(seed) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return device_; }
  // A task gets the thread's own runner of kernels.
  void push(Task task);
  bool idle() const;
  void drain();  // blocks until every task has ended
  void end();    // no more tasks; what is queued still runs

 private:
  void run();
  void run(std::unique_ptr<Task> task, Runner& runner);
  // The first task, when no other runs. Null: all have ended, or, if not draining, none will come any more.
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
