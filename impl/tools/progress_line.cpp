#include "tools/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace gangway {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

ProgressLine::ProgressLine(std::string what, uint64_t total)
    : what_(std::move(what)), total_(total), shown_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::add(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  const Clock::time_point now = Clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + kInterval;
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - start_).count());
  std::fprintf(stderr, "\r\033[K%s: %s of %s, %s/s", what_.c_str(), size_text(done_).c_str(),
               size_text(total_).c_str(),
               size_text(static_cast<uint64_t>(static_cast<double>(done_) / seconds)).c_str());
}

std::string size_text(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit < 5; ++unit) size /= 1024;
  char out[32];
  std::snprintf(out, sizeof out, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
  return out;
}

}  // namespace gangway
