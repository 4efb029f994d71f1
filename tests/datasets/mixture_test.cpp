#include "data/mixture.h"

#include <cmath>

#include "base/expect_error.h"

namespace gangway::data {
namespace {

const std::vector<std::vector<double>>& mixtures() {
  static const std::vector<std::vector<double>> all = {
      {1},
      {1, 1},
      {0.7, 0.3},
      {1, 1, 1},
      {5, 1e-4, 3, 2},
      {1.0 / 3, 1.0 / 7, 1.0 / 11, 1.0 / 13, 0.2},
      std::vector<double>(100, 0.01),
  };
  return all;
}

TEST(Mixture, SharesAreRoundedToTheNearestAndSumToTheWhole) {
  EXPECT_EQ(Mixture({1}).shares(), (std::vector<uint64_t>{65536}));
  EXPECT_EQ(Mixture({0.7, 0.3}).shares(), (std::vector<uint64_t>{45875, 19661}));
  EXPECT_EQ(Mixture({1, 1, 1}).shares(), (std::vector<uint64_t>{21846, 21845, 21845}));
  for (const std::vector<double>& weights : mixtures()) {
    const Mixture mixture(weights);
    uint64_t sum = 0;
    for (const uint64_t share : mixture.shares()) sum += share;
    EXPECT_EQ(sum, Mixture::kDenominator);
  }
}

TEST(Mixture, EachSourceIsWithinOneRowOfItsShareAfterAnyNumber) {
  for (const std::vector<double>& weights : mixtures()) {
    const Mixture mixture(weights);
    std::vector<int64_t> taken(weights.size());
    int64_t worst = 0;  // in units of 1/65536
    for (int64_t n = 0; n < 2 * 65536; ++n) {
      ++taken[mixture(static_cast<uint64_t>(n)).source];
      for (size_t k = 0; k < weights.size(); ++k)
        worst =
            std::max(worst, std::abs(taken[k] * 65536 - (n + 1) * static_cast<int64_t>(mixture.shares()[k])));
    }
    EXPECT_LT(worst, 65536) << weights.size() << " sources";
    for (size_t k = 0; k < weights.size(); ++k)
      EXPECT_EQ(taken[k], 2 * static_cast<int64_t>(mixture.shares()[k]));
  }
}

TEST(Mixture, ARowIsFoundAtOnceWhereCountingFindsIt) {
  for (const std::vector<double>& weights : mixtures()) {
    const Mixture mixture(weights);
    std::vector<uint64_t> taken(weights.size());
    for (uint64_t n = 0; n < 3 * 65536; ++n) {
      const Mixture::Place place = mixture(n);
      ASSERT_EQ(place.row, taken[place.source]++) << "row " << n;
    }
    // Far away, the place follows from whole periods.
    const uint64_t far = uint64_t{65536} * 1'000'000'007;
    for (uint64_t n = 0; n < 100; ++n) {
      const Mixture::Place near = mixture(n), there = mixture(far + n);
      EXPECT_EQ(there.source, near.source);
      EXPECT_EQ(there.row, near.row + 1'000'000'007 * mixture.shares()[near.source]);
    }
  }
}

TEST(Mixture, RefusesWeightsThatAreNoShares) {
  const auto refused = [](const std::vector<double>& weights, const std::string& message) {
    test::expect_error(Code::invalid_argument, message, [&] { Mixture mixture(weights); });
  };
  refused({}, "a dataset needs at least one source");
  refused({1, 0}, "sources[1].weight is 0, not a finite number above 0");
  refused({-1}, "sources[0].weight is -1, not a finite number above 0");
  refused({1, std::nan("")}, "sources[1].weight is nan, not a finite number above 0");
  refused({1e308, 1e308}, "the sum of the weights of the sources is infinite");
  refused({1, 1e-9}, "sources[1].weight is 1e-09 of 1, below the smallest share of 1/65536");
  refused(std::vector<double>(1025, 1.0),
          "a dataset has 1025 sources, the limit is 1024; a folder or a pattern is one source of many files");
}

}  // namespace
}  // namespace gangway::data
