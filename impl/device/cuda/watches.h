// Ends waits for a GPU that would never end, such as the wait for a kernel of NCCL whose peer has died. While
// the host waits, it asks each Watch whether something is lost. Without a Watch the host waits as CUDA does.
//
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
  // Returns the loss because of which the device may wait forever, if there is one. It is called repeatedly.
  virtual std::optional<Error> lost() = 0;
  // Aborts the work that waits forever. It does not wait for the device, where work of another Watch may still
  // wait forever.
  virtual void give_up(const Error& error) noexcept = 0;
};

class Watches {
 public:
  void add(Watch& watch);
  void remove(Watch& watch) noexcept;  // waits for a running call of the watch
  bool empty() const;

  // Waits until done() is true. After a loss it waits for kPatience more, because not all work waits for
  // peers. Then it calls give_up of each Watch with a loss, and throws the first loss.
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
