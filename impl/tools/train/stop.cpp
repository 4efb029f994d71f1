#include "tools/train/stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <sstream>

namespace gangway::train {
namespace {

std::atomic<int> got_signal{0};

void on_signal(int signal) {
  const bool again = got_signal.exchange(signal) != 0;
  if (again && signal != SIGUSR1) _exit(128 + signal);
}

bool is_over(double hours, std::chrono::steady_clock::time_point start) {
  return std::isfinite(hours) &&
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > hours * 3600;
}

}  // namespace

void take_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
  // nohup starts a program that ignores SIGHUP, so that the run outlives its terminal.
  struct sigaction before {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
}

bool Stop::wanted() const {
  return got_signal.load(std::memory_order_relaxed) != 0 || is_over(max_hours_, start_);
}

std::string Stop::reason() const {
  if (const int signal = got_signal.load(); signal != 0) return std::string("SIG") + sigabbrev_np(signal);
  if (!is_over(max_hours_, start_)) return "";
  std::ostringstream text;
  text << "train.max_hours = " << max_hours_;
  return text.str();
}

}  // namespace gangway::train
