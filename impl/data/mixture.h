// Which source each row of a mixture comes from.
//
// Thread rule: a value that does not change; const functions from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gangway::data {

// Weights are rounded to multiples of 1/65536 whose sum is 1 (the largest remainders are rounded up). The
// sources of one period of rows are chosen once by Tijdeman's rule (The chairman assignment problem, Discrete
// Mathematics 32, 1980): of the K sources that may come next without exceeding their share, the one whose
// deadline is first. After any number of rows each source is within 1 - 1/(2K - 2) rows of its share.
class Mixture {
 public:
  static constexpr uint64_t kDenominator = 65536;
  static constexpr size_t kMostSources = 1024;

  // INVALID_ARGUMENT: no source or too many, a weight that is not above 0 and finite, or one below 1/65536 of
  // the sum.
  explicit Mixture(const std::vector<double>& weights);

  struct Place {
    size_t source = 0;
    uint64_t row = 0;  // how many rows of this source come before; its epochs follow from that
  };
  // Returns the source of row n of the training, and which of the source's rows it is. O(1).
  Place operator()(uint64_t n) const;

  // The rounded weights, in units of 1/65536.
  const std::vector<uint64_t>& shares() const { return shares_; }

 private:
  struct Step {
    uint32_t source, before;  // `before`: rows of this source earlier in the period
  };
  void make_period();

  std::vector<uint64_t> shares_;
  std::vector<uint64_t> in_period_;  // rows of each source in a period
  std::vector<Step> period_;
};

}  // namespace gangway::data
