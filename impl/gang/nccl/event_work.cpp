#include "gang/nccl/event_work.h"

#include <utility>

#include "gang/backoff.h"

namespace gangway::nccl {

EventWork::EventWork(Device& device, std::shared_ptr<Failure> failure, std::shared_ptr<void> keep)
    : device_(device), end_(device.make_event()), failure_(std::move(failure)), keep_(std::move(keep)) {}

bool EventWork::poll() { return end_->done() || failure_->get().has_value(); }

void EventWork::wait(Deadline deadline) {
  Backoff backoff{};
  while (!end_->done()) {
    failure_->throw_if();
    if (deadline.passed()) fail(Code::not_ready, "the collective is not done yet");
    if (!backoff.yields()) backoff.sleep();
  }
  failure_->throw_if();
}

void EventWork::order(Stream& stream) {
  failure_->throw_if();
  if (&stream.device() == &device_) return stream.wait(*end_);
  wait(Deadline::never());
}

}  // namespace gangway::nccl
