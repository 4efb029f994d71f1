// Reasons to stop a run early: SIGTERM, SIGUSR1 (Slurm's warning before its limit), SIGINT, SIGHUP (a
// terminal that was closed), or --max-hours. The run ends its step, saves, and leaves with Exit::again. A
// second SIGTERM, SIGINT or SIGHUP ends the process at once.
//
// Thread rule: one object per process.
#pragma once

#include <chrono>
#include <string>

namespace gangway::train {

// Installs the handlers. A signal that comes before the first step stops the run after that step.
void take_stop_signals();

class Stop {
 public:
  explicit Stop(double max_hours) : max_hours_(max_hours) {}
  // Whether this rank wants to stop. Costs a load and a look at the clock.
  bool wanted() const;
  std::string reason() const;  // "SIGTERM", "train.max_hours = 2"; "" if another rank wants to stop

 private:
  double max_hours_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace gangway::train
