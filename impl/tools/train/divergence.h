// Notices a run that diverges: it tells of the first step that was skipped and how many followed, and ends a
// run that skips, or whose loss jumps, too often in a row. Such a run changes nothing any more, or nothing
// for the better, while its checkpoints take the place of good ones.
//
// Thread rule: one thread per object. The results of a step are equal on all ranks, so that all end alike.
#pragma once

#include <gangway/train.h>

#include <cstdint>
#include <string>

#include "tools/train/settings.h"

namespace gangway::train {

class Divergence {
 public:
  explicit Divergence(const Settings& settings);

  // Takes the result of step `step`. Returns a line to print, or "". Throws Failed (Exit::diverged) after the
  // last step that the limits allow.
  std::string note(int64_t step, const gw_step_result& result);

 private:
  std::string note_skip(int64_t step, gw_skip_reason reason);
  void note_loss(int64_t step, double loss);

  const int64_t most_skips_, most_spikes_;
  const double spike_ratio_;
  int64_t skips_ = 0, spikes_ = 0;  // in a row
  int64_t losses_ = 0;              // that `mean_` has taken
  double mean_ = 0;                 // a running mean of the losses that were no spikes
};

}  // namespace gangway::train
