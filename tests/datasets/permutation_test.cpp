#include "data/permutation.h"

#include <gtest/gtest.h>

#include <vector>

namespace gangway::data {
namespace {

std::vector<uint64_t> first_four(uint64_t count, uint64_t key) {
  const Permutation permutation(count, key);
  return {permutation(0), permutation(1), permutation(2), permutation(3)};
}

TEST(Permutation, EachNumberComesOnceInAnyRange) {
  for (const uint64_t count : {1u, 2u, 3u, 5u, 63u, 64u, 65u, 1000u, 4096u, 4097u}) {
    const Permutation permutation(count, 7);
    std::vector<bool> seen(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t image = permutation(i);
      ASSERT_LT(image, count);
      EXPECT_FALSE(seen[image]) << image << " of " << count;
      seen[image] = true;
    }
  }
}

TEST(Permutation, IsAnotherOneForEachKey) {
  const uint64_t count = 1000;
  int equal = 0;
  for (uint64_t i = 0; i < count; ++i) equal += Permutation(count, 1)(i) == Permutation(count, 2)(i);
  EXPECT_LT(equal, 10);  // chance gives about one
}

// Chi-squared of where each of a few numbers goes over many keys: about 1 for each degree of freedom.
TEST(Permutation, SendsEachNumberToEachPlaceEquallyOften) {
  for (const uint64_t count : {3u, 10u, 100u}) {
    const uint64_t keys = 400 * count;
    std::vector<double> first(count), last(count), steps(count);
    for (uint64_t key = 0; key < keys; ++key) {
      const Permutation permutation(count, derived_key(5, key));
      const uint64_t a = permutation(0), b = permutation(count - 1);
      ++first[a];
      ++last[b];
      ++steps[(b + count - a) % count];
    }
    for (const auto* counts : {&first, &last}) {
      double sum = 0;
      for (const double n : *counts) sum += (n - 400) * (n - 400) / 400;
      EXPECT_LT(sum / static_cast<double>(count - 1), count < 50 ? 4.6 : 1.6) << count;
    }
    EXPECT_EQ(steps[0], 0);
    double sum = 0;
    const double each = static_cast<double>(keys) / static_cast<double>(count - 1);
    for (uint64_t step = 1; step < count; ++step) sum += (steps[step] - each) * (steps[step] - each) / each;
    EXPECT_LT(sum / static_cast<double>(count - 1), count < 50 ? 4.6 : 1.6) << count;
  }
}

TEST(Permutation, ATrillionRowsNeedNoList) {
  const uint64_t count = 1'000'000'000'000;
  const Permutation permutation(count, 3);
  EXPECT_LT(permutation(0), count);
  EXPECT_LT(permutation(count - 1), count);
  EXPECT_NE(permutation(0), permutation(1));
}

// Frozen: a checkpoint's place in the data relies on it. The values are those of a program of its own in
// Python (golden.py).
TEST(Permutation, GoldenValuesStay) {
  EXPECT_EQ(derived_key(42, 7), 7527850912803292081u);
  EXPECT_EQ(first_four(10, derived_key(42, 7)), (std::vector<uint64_t>{9u, 8u, 0u, 4u}));
  EXPECT_EQ(first_four(1000, derived_key(42, 7)), (std::vector<uint64_t>{666u, 757u, 986u, 390u}));
  EXPECT_EQ(first_four(1000000000000, derived_key(42, 7)),
            (std::vector<uint64_t>{939603293307u, 780747233360u, 483675980363u, 836984547233u}));
}

}  // namespace
}  // namespace gangway::data
