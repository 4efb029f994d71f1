#include "metrics/loss_curve.h"

#include <cmath>

namespace gangway {

void LossCurve::Sum::add(double value) {
  if (!std::isfinite(value)) return;
  of += value;
  ++count;
}
void LossCurve::Sum::add(const Sum& other) {
  of += other.of;
  count += other.count;
}
double LossCurve::Sum::mean() const { return count > 0 ? of / static_cast<double>(count) : kNoValue; }

void LossCurve::add(const LogFile::Point& point) {
  const int64_t index = point.step / width_;
  if (means_.empty() || means_.back().index != index) means_.push_back({index, 0, {}, {}, {}});
  Mean& mean = means_.back();
  mean.last = point.step;
  mean.step.add(static_cast<double>(point.step));
  mean.loss.add(point.loss);
  mean.validation_loss.add(point.validation_loss);
  while (means_.size() > kMostPoints) widen();
}

void LossCurve::widen() {
  width_ *= 2;
  std::vector<Mean> wide;
  for (Mean& mean : means_) {
    mean.index /= 2;
    if (wide.empty() || wide.back().index != mean.index) {
      wide.push_back(mean);
      continue;
    }
    wide.back().last = mean.last;
    wide.back().step.add(mean.step);
    wide.back().loss.add(mean.loss);
    wide.back().validation_loss.add(mean.validation_loss);
  }
  means_ = std::move(wide);
}

void LossCurve::cut_after(int64_t step) {
  while (last_step() > step) means_.pop_back();
}

std::vector<LogFile::Point> LossCurve::points() const {
  std::vector<LogFile::Point> all;
  all.reserve(means_.size());
  for (const Mean& mean : means_)
    all.push_back({std::llround(mean.step.mean()), mean.loss.mean(), mean.validation_loss.mean()});
  return all;
}

}  // namespace gangway
