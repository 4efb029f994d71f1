// Whether one rank's side of an engine is broken, and how it breaks: the first error is kept, the peers are
// told, and the calls in flight end.
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

  // Returns whether there was no news of a failure since the last check(). It costs a few loads.
  bool quiet() const {
    return !failed() && !team_.board().broken() &&
           team_.member().losses() == losses_seen_.load(std::memory_order_relaxed);
  }
  // Looks for a reason to break. `work` is what the caller waits for; `call` names what else it waits for or
  // is about to begin, "" for nothing; `asleep` says that it has waited for long. Returns whether the engine
  // is broken.
  bool check(const HostWork* work, const char* call, bool asleep = false);

  // --- the caller holds the core's mutex ---
  const std::optional<Error>& first_error() const { return error_; }
  void break_with(const Error& error, bool tell_peers) noexcept;
  // This rank releases the engine without a shutdown: with Mark::gone all its calls end, with Mark::draining
  // they go on.
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
