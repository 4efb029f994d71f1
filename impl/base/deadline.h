// A point in time by which a wait must end.
//
// Thread rule: values.
#pragma once

#include <chrono>
#include <cstdint>

namespace gangway {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  // A negative time means never. So does a time of more than a century, which would overflow a clock in
  // nanoseconds.
  static Deadline after_ms(int64_t ms) {
    return ms < 0 || ms > kCenturyMs ? never() : Deadline(Clock::now() + std::chrono::milliseconds(ms));
  }

  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  bool is_never() const { return at_ == Clock::time_point::max(); }
  // Returns the milliseconds left, at least 0 and at most `cap`.
  int64_t left_ms(int64_t cap) const {
    if (is_never()) return cap;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left < 0 ? 0 : left > cap ? cap : left;
  }

 private:
  static constexpr int64_t kCenturyMs = int64_t{100} * 366 * 24 * 3600 * 1000;
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace gangway
