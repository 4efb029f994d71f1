// The progress of a run on a terminal: one line that is updated, or a line for each interval where standard
// output is no terminal.
//
// Thread rule: one thread per object.
#pragma once

#include <gangway/metrics.h>

#include <chrono>

namespace gangway::train {

class Progress {
 public:
  explicit Progress(int64_t total_steps) : total_(total_steps) {}
  ~Progress();  // ends the line
  void show(const gw_metrics_row& row);

 private:
  void end_line();

  int64_t total_;
  int64_t first_ = -1;  // the first step that this object has shown
  bool line_is_open_ = false;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace gangway::train
