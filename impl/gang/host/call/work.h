// The host engine's Work: a span of calls that was started together.
//
// Thread rule: that of a Work (gang/work.h); functions that say so are called under the core's mutex.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "gang/work.h"

namespace gangway::host {

class HostWork;

// The part of an engine that drives the calls of its works. Any thread of the rank.
class Driver : public std::enable_shared_from_this<Driver> {
 public:
  virtual ~Driver() = default;
  // Drives progress once. Returns whether the work is in one of `states` or its engine is broken.
  virtual bool poll(HostWork& work, uint32_t states) = 0;
  // Waits until the work is in one of `states`. Throws if the wait fails first.
  virtual void wait(HostWork& work, uint32_t states, Deadline deadline) = 0;
};

class HostWork final : public WaitedWork {
 public:
  enum State : uint32_t { kOutput = 1, kInput = 2, kFailed = 4 };

  bool poll() override { return poll_for(kOutput | kFailed); }
  bool poll_input() override { return poll_for(kInput | kFailed); }
  void wait(Deadline deadline) override;
  void wait_input(Deadline deadline) override;
  std::optional<Error> error() const override;

  bool is_in(uint32_t states) const { return (state_.load(std::memory_order_acquire) & states) != 0; }
  // Returns whether no call in a lane points to the work any more.
  bool ended() const { return is_in(kInput | kFailed); }

  // The work's calls use these, under the core's mutex.
  void begin(int calls);
  void output_ended();  // one of the calls has its output
  void input_ended();
  void fail(const Error& error) noexcept;

 private:
  friend class WorkPool;
  void enter(uint32_t state) {
    state_.store(state_.load(std::memory_order_relaxed) | state, std::memory_order_release);
  }
  bool poll_for(uint32_t states);
  void wait_for(State end, Deadline deadline);

  std::weak_ptr<Driver> driver_;  // while a call is outstanding, the rank's list holds the driver
  std::atomic<uint32_t> state_{0};
  int outputs_ = 0, inputs_ = 0;  // how many calls have not ended
  std::optional<Error> error_;
};

// The works of one driver. A work that no caller holds is reused. Used under the core's mutex.
class WorkPool {
 public:
  std::shared_ptr<HostWork>& take(Driver& driver);
  bool has_unended() const;  // whether a caller holds a work that has not ended

 private:
  std::vector<std::shared_ptr<HostWork>> works_;
  size_t next_ = 0;
};

}  // namespace gangway::host
