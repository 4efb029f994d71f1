#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace gangway {
namespace {

// Makes tokens that the row has already less likely: a positive logit is divided, another one multiplied.
void penalize(std::vector<double>& logits, std::span<const int64_t> earlier, double penalty) {
  std::vector<int64_t> ids(earlier.begin(), earlier.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const int64_t id : ids) {
    double& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Returns how many of the likeliest tokens stay. `sums[i]` is the sum of the first i + 1 weights, which
// descend from 1.
size_t tokens_kept(const std::vector<double>& sums, const GenerateOptions& options) {
  size_t keep = sums.size();
  if (options.top_p < 1) {
    // The fewest tokens whose share reaches top_p.
    const auto reached = std::lower_bound(sums.begin(), sums.end(), options.top_p * sums.back());
    keep = std::min(keep, static_cast<size_t>(reached - sums.begin()) + 1);
  }
  if (options.min_p > 0) {
    size_t likely = 1;
    while (likely < keep && sums[likely] - sums[likely - 1] >= options.min_p) ++likely;
    keep = likely;
  }
  return keep;
}

}  // namespace

void check_sampling(const GenerateOptions& options, int64_t vocab) {
  if (!(std::isfinite(options.temperature) && options.temperature >= 0))
    fail(Code::invalid_argument, "generate: temperature = ", options.temperature,
         " is not a finite number >= 0");
  if (options.top_k < 0) fail(Code::invalid_argument, "generate: top_k = ", options.top_k, " is negative");
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail(Code::invalid_argument, "generate: top_p = ", options.top_p, " is not above 0 and at most 1");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    fail(Code::invalid_argument, "generate: min_p = ", options.min_p, " is not in [0, 1]");
  if (!(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0))
    fail(Code::invalid_argument, "generate: repetition_penalty = ", options.repetition_penalty,
         " is not a finite number above 0");
  for (const int64_t id : options.stop_tokens)
    if (id < 0 || id >= vocab)
      fail(Code::invalid_argument, "generate: stop token ", id, " is outside [0, ", vocab, ")");
}

int64_t sample(std::span<const double> logits, std::span<const int64_t> earlier,
               const GenerateOptions& options, double uniform) {
  std::vector<double> x(logits.begin(), logits.end());
  for (size_t id = 0; id < x.size(); ++id)
    if (!std::isfinite(x[id])) return -1 - static_cast<int64_t>(id);
  if (options.repetition_penalty != 1) penalize(x, earlier, options.repetition_penalty);
  if (options.temperature == 0) return std::max_element(x.begin(), x.end()) - x.begin();

  std::vector<int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int64_t id) { return x[static_cast<size_t>(id)]; };
  const size_t keep =
      options.top_k == 0 ? order.size() : std::min(order.size(), static_cast<size_t>(options.top_k));
  const auto likelier = [&](int64_t a, int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  // std::partial_sort takes much longer where most of a large vocabulary stays.
  const auto end_of_kept = order.begin() + static_cast<ptrdiff_t>(keep);
  std::nth_element(order.begin(), end_of_kept, order.end(), likelier);
  std::sort(order.begin(), end_of_kept, likelier);
  std::vector<double> sums;
  double sum = 0;
  for (size_t i = 0; i < keep; ++i)
    sums.push_back(sum += std::exp((logit(order[i]) - logit(order[0])) / options.temperature));
  sums.resize(tokens_kept(sums, options));
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), uniform * sums.back());
  return order[std::min(static_cast<size_t>(chosen - sums.begin()), sums.size() - 1)];
}

}  // namespace gangway
