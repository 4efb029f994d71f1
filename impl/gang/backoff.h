// Waiting on the host for an event that wakes no thread: the thread yields for a millisecond, then sleeps,
// longer each time.
//
// Thread rule: a value of one thread.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/deadline.h"

namespace gangway {

class Backoff {
 public:
  // Yields and returns true in the first millisecond, when the caller need not check deadlines yet. Then
  // returns false: it is time to sleep.
  bool yields() {
    if (Deadline::Clock::now() - start_ >= kYield) return false;
    sched_yield();
    return true;
  }
  void sleep() {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 2, kLongest);
  }
  int64_t since_start_ns() const { return std::chrono::nanoseconds(Deadline::Clock::now() - start_).count(); }

 private:
  static constexpr std::chrono::milliseconds kYield{1};
  static constexpr std::chrono::microseconds kShortest{5}, kLongest{500};

  const Deadline::Clock::time_point start_ = Deadline::Clock::now();
  std::chrono::microseconds nap_ = kShortest;
};

}  // namespace gangway
