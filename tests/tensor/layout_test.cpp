#include "tensor/layout.h"

#include <gtest/gtest.h>

namespace gangway {
namespace {

using Bounds = std::vector<int64_t>;

TEST(Layout, FsdpSplitsInPiecesOfTheCeilingAndTrailingRanksMayHoldNone) {
  EXPECT_EQ(ceil_bounds(5, 4), (Bounds{0, 2, 4, 5, 5}));
  EXPECT_EQ(ceil_bounds(0, 3), (Bounds{0, 0, 0, 0}));
  EXPECT_EQ(ceil_bounds(1, 8), (Bounds{0, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ceil_bounds(8, 4), (Bounds{0, 2, 4, 6, 8}));
  EXPECT_EQ(ceil_bounds(7, 1), (Bounds{0, 7}));
}

TEST(Layout, TheBalancedSplitGivesTheFirstOnesOneMore) {
  EXPECT_EQ(balanced_bounds(5, 4), (Bounds{0, 2, 3, 4, 5}));
  EXPECT_EQ(balanced_bounds(11, 3), (Bounds{0, 4, 8, 11}));
  EXPECT_EQ(balanced_bounds(2, 4), (Bounds{0, 1, 2, 2, 2}));
}

TEST(Layout, DescribesItselfAsText) {
  EXPECT_EQ(describe(Layout{}), "replicated");
  const Layout layout = {Placement::shard("tp", 1, {0, 2, 4}), Placement::shard("dp_shard", 0, {0, 1, 2}),
                         Placement::partial("cp")};
  EXPECT_EQ(describe(layout), "tp: Shard(1), dp_shard: Shard(0), cp: Partial");
}

}  // namespace
}  // namespace gangway
