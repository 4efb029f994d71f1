// Whether one rank's side of an engine is broken, and how it breaks: it keeps the first error, notifies the
// peers, and fails the calls in flight.
//
// Thread rule: any thread. Where marked, the caller holds the core's mutex; the other functions take it.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "gang/host/calls.h"

namespace gangway::host {

class Failure {
 public:
  Failure(Team& team, Calls& calls, std::mutex& mutex, int64_t timeout_ms);

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[noreturn]] void raise() const;
  std::optional<Error> error() const;

  // Returns whether nothing indicates a failure since the last check(). It costs a few loads.
  bool quiet() const {
    return !failed() && !team_.board().broken() &&
           team_.member().losses() == losses_seen_.load(std::memory_order_relaxed);
  }
  // Breaks the engine if there is a reason, and returns whether it is broken. `work` is the work that the
  // caller waits for, or null. `call` names what else it waits for or is about to begin, or is "". `asleep`:
  // it has waited for long.
  bool check(const HostWork* work, const char* call, bool asleep = false);

  // --- the caller holds the core's mutex ---
  const std::optional<Error>& first_error() const { return error_; }
  void break_with(const Error& error, bool tell_peers) noexcept;
  // Marks that this rank releases the engine without a shutdown. With Mark::gone all its calls end; with
  // Mark::draining they go on.
  void leave(Mark mark) noexcept;

 private:
  bool check_absent(const Op& op);
  bool moves_on();
  void give_up() noexcept;
  void log_flight_record() const noexcept;

  Team& team_;
  Calls& calls_;
  std::mutex& mutex_;
  const int64_t timeout_ms_;
  std::atomic<uint32_t> losses_seen_{0};
  std::atomic<bool> failed_{false};
  std::optional<Error> error_;
};

}  // namespace gangway::host
