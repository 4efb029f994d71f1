// Medians and percentiles of the rounds of one measurement.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace gangway::bench {

struct Samples {
  std::vector<double> values;

  void add(double value) { values.push_back(value); }
  bool empty() const { return values.empty(); }
  double at(double q) const {  // linear between neighbours; NaN for none
    if (values.empty()) return NAN;
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double place = q * static_cast<double>(sorted.size() - 1);
    const size_t low = static_cast<size_t>(place), high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
  }
  double median() const { return at(0.5); }
  double p10() const { return at(0.1); }
  double p90() const { return at(0.9); }
  double least() const { return at(0); }
};

// Median over the rounds of a[i] / b[i], taken at the same time; NaN without common rounds.
inline double paired_ratio(const Samples& a, const Samples& b) {
  Samples ratios;
  for (size_t i = 0; i < std::min(a.values.size(), b.values.size()); ++i)
    ratios.add(a.values[i] / b.values[i]);
  return ratios.median();
}

}  // namespace gangway::bench
