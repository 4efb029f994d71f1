// Signals that the launcher forwards, and what happens to ranks that do not end when they are asked to.
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tools/attempt.h"

namespace gangway::tools {
namespace {

// Returns whether the process ignores the signal, so that it will not end because of it.
bool ignores(pid_t pid, int signal) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;)
    if (word == "SigIgn:") {
      uint64_t mask = 0;
      return static_cast<bool>(file >> std::hex >> mask) && (mask >> (signal - 1) & 1) != 0;
    }
  return false;
}

}  // namespace

void Attempt::take_signals() {
  signalfd_siginfo facts;
  while (read(signals_.fd, &facts, sizeof facts) == sizeof facts) {
    const int signal = static_cast<int>(facts.ssi_signo);
    if (signal == SIGCHLD) continue;
    // Slurm's warning before its time limit. The program saves and leaves; the scheduler starts it again.
    if (signal == SIGUSR1) warned_ = true;
    const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    if (ends && ++end_requests_ == 3) {
      say("third request to end: killing all ranks");
      signal_all(SIGKILL);
    } else {
      signal_all(signal);
    }
    if (ends) end_signal_ = signal;
    if (ends && end_requests_ == 1) limit_end();
  }
}

void Attempt::limit_end() {
  signal_all(SIGCONT);  // a stopped rank cannot end
  deaf_at_ = Deadline::after_ms(kKillMs);
  end_by_ = Deadline::after_ms(static_cast<int64_t>(options_.end_grace_s * 1000));
}

// The input of a node ends when the user's gangrun has ended, or ends this host's ranks because others
// failed.
void Attempt::look_at_input() {
  char ignored[64];
  if (read(0, ignored, sizeof ignored) > 0) return;
  input_ended_ = true;
  if (failure_ || end_requests_ > 0) return;
  ++end_requests_;
  end_signal_ = SIGTERM;
  signal_all(SIGTERM);
  limit_end();
}

// A rank that ignores the signal has no reason to end. One that handles it may be saving its state, for which
// it has much longer.
void Attempt::enforce_end_request() {
  if (deaf_at_.passed()) {
    deaf_at_ = Deadline::never();
    for (const RankProcess& rank : ranks_)
      if (rank.running && ignores(rank.pid, end_signal_)) {
        say(text(called(rank), " ignores SIG", sigabbrev_np(end_signal_), ": killing it"));
        signal_rank(rank.pid, SIGKILL);
      }
  }
  if (end_by_.passed()) {
    end_by_ = Deadline::never();
    say(text(running(), running() == 1 ? " rank has" : " ranks have", " not ended ", options_.end_grace_s,
             " s after SIG", sigabbrev_np(end_signal_), ": killing ", running() == 1 ? "it" : "them"));
    signal_all(SIGKILL);
  }
}

}  // namespace gangway::tools
