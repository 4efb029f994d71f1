// Signals that the launcher forwards, and what happens to ranks that do not end when they are asked to.
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "tools/attempt.h"

namespace gangway::tools {
namespace {

// Returns whether the signal is in a mask of /proc/PID/status: "SigIgn:" has those that the process ignores,
// "SigCgt:" those that it handles.
bool has_signal(pid_t pid, const std::string& mask_name, int signal) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;)
    if (word == mask_name) {
      uint64_t mask = 0;
      return static_cast<bool>(file >> std::hex >> mask) && (mask >> (signal - 1) & 1) != 0;
    }
  return false;
}

// A rank that ignores the signal will not end because of it.
bool ignores(pid_t pid, int signal) { return has_signal(pid, "SigIgn:", signal); }

bool may_still_handle(const RankProcess& rank, int signal) {
  const auto age = std::chrono::steady_clock::now() - rank.started;
  return age < std::chrono::milliseconds(kStartMs) && !has_signal(rank.pid, "SigCgt:", signal) &&
         !ignores(rank.pid, signal);
}

}  // namespace

void Attempt::send(const RankProcess& rank, int signal) const {
  if (rank.input < 0 || signal == SIGKILL) return signal_rank(rank.pid, signal);
  const auto byte = static_cast<char>(signal);
  if (signal != SIGCONT) (void)!write(rank.input, &byte, 1);  // a shell that has ended needs none
}

void Attempt::ask(RankProcess& rank, int signal) {
  if (!rank.running) return;
  if (rank.input < 0 && may_still_handle(rank, signal))
    rank.postponed.push_back(signal);
  else
    send(rank, signal);
}

void Attempt::ask_postponed() {
  for (RankProcess& rank : ranks_)
    for (const int signal : std::exchange(rank.postponed, {})) ask(rank, signal);
}

void Attempt::forward(int signal) {
  // Slurm's warning before its time limit. The program saves and leaves; the scheduler starts it again.
  if (signal == SIGUSR1) warned_ = true;
  const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  if (ends && ++end_requests_ == 3) {
    say("third request to end: killing all ranks");
    signal_all(SIGKILL);
  } else {
    for (RankProcess& rank : ranks_) ask(rank, signal);
  }
  if (ends) end_signal_ = signal;
  if (ends && end_requests_ == 1) limit_end();
}

void Attempt::take_signals() {
  signalfd_siginfo facts;
  while (read(signals_.fd, &facts, sizeof facts) == sizeof facts)
    if (const int signal = static_cast<int>(facts.ssi_signo); signal != SIGCHLD) forward(signal);
}

void Attempt::limit_end() {
  signal_all(SIGCONT);  // a stopped rank cannot end
  deaf_at_ = Deadline::after_ms(kKillMs);
  end_by_ = Deadline::after_ms(static_cast<int64_t>(options_.end_grace_s * 1000));
}

// The input of a node has a byte for each signal that the user's gangrun forwards. It ends when that gangrun
// has ended, or ends this host's ranks because others failed.
void Attempt::look_at_input() {
  char asked[64];
  const ssize_t count = read(0, asked, sizeof asked);
  for (ssize_t i = 0; i < count; ++i)
    if (asked[i] == SIGKILL)
      signal_all(SIGKILL);
    else if (std::find(kForwarded.begin(), kForwarded.end(), asked[i]) != kForwarded.end())
      forward(asked[i]);
  if (count > 0) return;
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
        send(rank, SIGKILL);
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
