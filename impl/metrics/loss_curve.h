// The losses of a run for its picture, thinned out: a run of any length takes the same memory, and is drawn
// in the same time. Losses of neighbouring steps are kept as their mean, of twice as many steps each time
// that the means become too many.
//
// Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <vector>

#include "metrics/log_files.h"

namespace gangway {

class LossCurve {
 public:
  static constexpr size_t kMostPoints = 2048;  // at least one for each column of the picture

  void add(const LogFile::Point& point);  // ascending by step
  // Removes the means of steps above `step`. One that has both earlier and later steps goes, too.
  void cut_after(int64_t step);
  int64_t last_step() const { return means_.empty() ? -1 : means_.back().last; }
  std::vector<LogFile::Point> points() const;

 private:
  struct Sum {
    double of = 0;
    int64_t count = 0;
    void add(double value);
    void add(const Sum& other);
    double mean() const;
  };
  struct Mean {
    int64_t index = 0, last = 0;  // index: step / width_; last: the last step
    Sum step, loss, validation_loss;
  };
  void widen();

  std::vector<Mean> means_;
  int64_t width_ = 1;  // steps of a mean
};

}  // namespace gangway
