// Those who are asked while the host waits for a GPU: what it waits for may never come, like a kernel of NCCL whose peer is
// gone. Without them the host waits as CUDA does.
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"

namespace gangway::cuda {

class Watch {
 public:
  virtual ~Watch() = default;
  // What the device may wait for in vain; asked again and again, without a lock of its own.
  virtual std::optional<Error> lost() = 0;
  // Ends what waits in vain.
  virtual void give_up(const Error& error) noexcept = 0;
};

class Watches {
 public:
  void add(Watch& watch);
  void remove(Watch& watch) noexcept;  // waits for a call that runs
  bool empty() const;

  // Waits until `done`. Where something is lost, `done` has a while to come all the same: not all work waits for peers.
  // After that all is given up and the first loss is thrown.
  template <typename Done>
  void wait(Done&& done) {
    const Clock::time_point start = Clock::now();
    std::optional<Clock::time_point> until;
    while (!done()) {
      const Clock::time_point now = Clock::now();
      if (now - start < kYield) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(kNap);
      if (!any_lost()) continue;
      if (!until) until = now + kPatience;
      if (now >= *until) give_up();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kYield{1}, kPatience{500};
  static constexpr std::chrono::microseconds kNap{50};

  bool any_lost();
  void give_up();

  mutable std::mutex mutex_;
  std::vector<Watch*> all_;
};

}  // namespace gangway::cuda
