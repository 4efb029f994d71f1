#include "tools/train/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace gangway::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSecondsBetweenLines = 5;  // where standard output is no terminal

std::string remaining(double seconds) {
  char text[32];
  const auto s = static_cast<long long>(seconds);
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  return text;
}

}  // namespace

Progress::~Progress() { end_line(); }

void Progress::end_line() {
  if (line_is_open_) std::printf("\n");
  line_is_open_ = false;
  std::fflush(stdout);
}

void Progress::show(const gw_metrics_row& row) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const Clock::time_point now = Clock::now();
  const bool first = first_ < 0;
  if (first) {
    first_ = row.step;
    start_ = now;
  }
  const auto since = [&](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  const bool evaluated = std::isfinite(row.validation_loss);
  if (!terminal && !first && !evaluated && row.step != total_ && since(shown_) < kSecondsBetweenLines) return;
  shown_ = now;
  std::string line = "step " + std::to_string(row.step);
  if (total_ > 0) line += "/" + std::to_string(total_);
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "  loss %.4f  lr %.3g  %.0f tokens/s", row.loss, row.lr,
                row.tokens_per_second);
  line += numbers;
  if (std::isfinite(row.grad_norm)) {
    std::snprintf(numbers, sizeof numbers, "  grad norm %.3f", row.grad_norm);
    line += numbers;
  }
  if (evaluated) {
    std::snprintf(numbers, sizeof numbers, "  validation loss %.4f", row.validation_loss);
    line += numbers;
  }
  if (std::isfinite(row.mfu)) {
    std::snprintf(numbers, sizeof numbers, "  MFU %.1f %%", 100 * row.mfu);
    line += numbers;
  }
  if (total_ > row.step && row.step > first_)
    line += "  " +
            remaining(since(start_) / static_cast<double>(row.step - first_) *
                      static_cast<double>(total_ - row.step)) +
            " left";
  std::printf("%s%s%s", terminal ? "\r" : "", line.c_str(), terminal ? "\033[K" : "\n");
  line_is_open_ = terminal;
  if (evaluated || row.step == total_) end_line();  // what was evaluated stays to be read
  std::fflush(stdout);
}

}  // namespace gangway::train
