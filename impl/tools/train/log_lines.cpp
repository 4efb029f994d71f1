#include "tools/train/log_lines.h"

#include <gangway/base.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>

namespace gangway::train {
namespace {

constexpr std::chrono::milliseconds kPause{100};

// Returns the lines from number `next` on, and sets `next` to the number after them.
std::string lines_from(uint64_t& next) {
  size_t length = 0;
  uint64_t following = next;
  if (gw_log_read(next, nullptr, 0, &length, &following) != GW_OK || length == 0) return "";
  std::string text(length + 1, '\0');
  // Lines that were logged since then have no room; they come next time.
  if (gw_log_read(next, text.data(), text.size(), &length, &following) != GW_OK) return "";
  text.resize(length);
  next = following;
  return text;
}

void print_warnings(uint64_t& next) {
  std::istringstream lines(lines_from(next));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, level, message;
    words >> number >> level;
    std::getline(words >> std::ws, message);
    if (level == "warning" || level == "error") std::printf("%s\n", message.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

LogLines::LogLines(bool prints) {
  if (!prints) return;
  lines_from(next_);  // earlier lines are not about what happens now
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the thread that trains
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogLines::~LogLines() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void LogLines::run() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kPause, [&] { return ending_; })) print_warnings(next_);
  print_warnings(next_);
}

}  // namespace gangway::train
