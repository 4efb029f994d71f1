// A collective on a stream of a device. An event marks its end. A blocking wait polls, so that an abort, a
// deadline or an interrupt ends it.
//
// Thread rule: a Work's (gang/work.h).
#pragma once

#include <memory>
#include <mutex>

#include "gang/engine.h"

namespace gangway::nccl {

// The first failure of an engine. Its works share it and may outlive the engine.
class Failure {
 public:
  void keep(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    keep_first(error_, error);
  }
  std::optional<Error> get() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void throw_if() const {
    if (const auto error = get()) throw *error;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

class EventWork final : public Work {
 public:
  // The work owns `keep`, which the device uses until the end.
  EventWork(Device& device, std::shared_ptr<Failure> failure, std::shared_ptr<void> keep);

  void record(Stream& stream) { end_->record(stream); }

  bool poll() override;
  bool poll_input() override { return poll(); }
  void wait(Deadline deadline) override;
  void wait_input(Deadline deadline) override { wait(deadline); }
  void order(Stream& stream) override;
  void order_input(Stream& stream) override { order(stream); }
  std::optional<Error> error() const override { return failure_->get(); }

 private:
  Device& device_;
  const std::unique_ptr<Event> end_;
  const std::shared_ptr<Failure> failure_;
  const std::shared_ptr<void> keep_;
};

}  // namespace gangway::nccl
