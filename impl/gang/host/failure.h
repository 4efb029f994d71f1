// Whether one rank's side of an engine is broken, and how it breaks: the first error, what its peers hear of it, the end
// of the calls in flight.
//
// Thread rule: any thread; what is marked is under the core's mutex, the rest takes it.
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

  // Is there no news of a failure since the last check()? A few loads.
  bool quiet() const {
    return !failed() && !team_.board().broken() &&
           team_.member().losses() == losses_seen_.load(std::memory_order_relaxed);
  }
  // Looks for a reason to break; `work` is what the caller waits for, `call` what else it waits for or is about to begin,
  // "" for nothing; `asleep`: it has waited for long. True: broken.
  bool check(const HostWork* work, const char* call, bool asleep = false);

  // --- under the core's mutex ---
  const std::optional<Error>& first_error() const { return error_; }
  void break_with(const Error& error, bool tell_peers) noexcept;
  // This rank lets go of the engine without shutdown. Mark::gone: no call goes on; Mark::draining: they do.
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
