#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace gangway::data {
namespace {

double checked_sum(const std::vector<double>& weights) {
  if (weights.empty()) fail(Code::invalid_argument, "a dataset needs at least one source");
  if (weights.size() > Mixture::kMostSources)
    fail(Code::invalid_argument, "a dataset has ", weights.size(), " sources, the limit is ",
         Mixture::kMostSources, "; a folder or a pattern is one source of many files");
  double sum = 0;
  for (size_t k = 0; k < weights.size(); ++k) {
    if (!std::isfinite(weights[k]) || weights[k] <= 0)
      fail(Code::invalid_argument, "sources[", k, "].weight is ", weights[k],
           ", not a finite number above 0");
    sum += weights[k];
  }
  if (!std::isfinite(sum)) fail(Code::invalid_argument, "the sum of the weights of the sources is infinite");
  return sum;
}

std::vector<uint64_t> rounded(const std::vector<double>& weights) {
  const double sum = checked_sum(weights);
  std::vector<uint64_t> shares;
  std::vector<double> rests;
  uint64_t given = 0;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(Mixture::kDenominator);
    shares.push_back(static_cast<uint64_t>(exact));
    rests.push_back(exact - std::floor(exact));
    given += shares.back();
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rests[a] > rests[b]; });
  for (size_t i = 0; given < Mixture::kDenominator; ++i, ++given) ++shares[order[i % order.size()]];
  for (size_t k = 0; k < shares.size(); ++k)
    if (shares[k] == 0)
      fail(Code::invalid_argument, "sources[", k, "].weight is ", weights[k], " of ", sum,
           ", below the smallest share of 1/", Mixture::kDenominator);
  return shares;
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) : shares_(rounded(weights)) { make_period(); }

void Mixture::make_period() {
  uint64_t divisor = kDenominator;
  for (const uint64_t share : shares_) divisor = std::gcd(divisor, share);
  for (const uint64_t share : shares_) in_period_.push_back(share / divisor);
  const int64_t length = static_cast<int64_t>(kDenominator / divisor);
  const size_t sources = shares_.size();
  if (sources == 1) {
    period_.push_back({0, 0});
    return;
  }
  // All numbers below are in units of 1 / (length * scale), where 1 / scale is Tijdeman's 1/(2K - 2). `ahead`
  // is a source's share of the rows up to and with this one, less the rows that it has had.
  const int64_t scale = 2 * static_cast<int64_t>(sources) - 2;
  std::vector<int64_t> ahead(sources, 0);
  std::vector<uint32_t> had(sources, 0);
  for (int64_t n = 0; n < length; ++n) {
    size_t best = sources;
    int64_t best_slack = 0, best_weight = 1;
    for (size_t k = 0; k < sources; ++k) {
      const int64_t weight = static_cast<int64_t>(in_period_[k]);
      ahead[k] += weight * scale;
      if (ahead[k] < length) continue;
      const int64_t slack = length * (scale - 1) - ahead[k];
      // slack / weight is the number of rows until the deadline.
      if (best == sources || slack * best_weight < best_slack * weight) {
        best = k;
        best_slack = slack;
        best_weight = weight;
      }
    }
    GW_CHECK(best, <, sources);
    period_.push_back({static_cast<uint32_t>(best), had[best]++});
    ahead[best] -= length * scale;
  }
}

Mixture::Place Mixture::operator()(uint64_t n) const {
  const Step& step = period_[static_cast<size_t>(n % period_.size())];
  return {step.source, n / period_.size() * in_period_[step.source] + step.before};
}

}  // namespace gangway::data
