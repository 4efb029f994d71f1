// The geometry of partitions, as one rank of a fake gang sees it.
#include "mesh/partition.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"

namespace gangway {
namespace {

using List = std::vector<int>;

template <typename Call>
void refuse(const char* part, Call&& call) {
  const Error error = test::error_of(call);
  EXPECT_STREQ(name(error.code()), name(Code::invalid_argument)) << error.message();
  EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

Partition world(int rank, int size) {
  GangOptions options;
  options.threads = 1;
  return Partition(Gang::create_fake(rank, size, options, /*record=*/false));
}

TEST(Partition, OfAGangHasAllItsRanksInOneDim) {
  const Partition all = world(2, 5);
  EXPECT_TRUE(all.active());
  EXPECT_EQ(all.rank(), 2);
  EXPECT_EQ(all.size(), 5);
  EXPECT_EQ(all.shape(), (List{5}));
  EXPECT_EQ(all.index(), (List{2}));
}

TEST(Partition, TheOrderOfTheListIsTheOrderOfItsWorkers) {
  const List ranks = {4, 1, 3};
  EXPECT_EQ(world(3, 5).inclusive(ranks).rank(), 2);
  EXPECT_EQ(world(4, 5).inclusive(ranks).rank(), 0);
  const Partition outside = world(0, 5).inclusive(ranks);
  EXPECT_FALSE(outside.active());
  EXPECT_EQ(outside.rank(), -1);
  EXPECT_EQ(outside.size(), 3);
  EXPECT_EQ(outside.index(), List{});
  // Workers of a partition are counted in it, not in the gang.
  EXPECT_EQ(outside.inclusive(List{2, 0}).ranks(), (List{3, 4}));
}

TEST(Partition, AUnionHasTheFirstOnesWorkersFirst) {
  const Partition all = world(0, 6);
  EXPECT_EQ(all.inclusive(List{3, 1}).unite(all.inclusive(List{0, 1, 5})).ranks(), (List{3, 1, 0, 5}));
}

TEST(Partition, AGridIsRowMajorWithTheLastDimFastest) {
  for (int rank = 0; rank < 12; ++rank) {
    const Partition grid = world(rank, 12).cartesian(List{2, 2, 3});
    EXPECT_EQ(grid.index(), (List{rank / 6, rank / 3 % 2, rank % 3}));
    EXPECT_EQ(grid.worker_at(grid.index()), rank);
  }
}

TEST(Partition, NeighborsEndAtTheEdges) {
  const Partition grid = world(4, 6).cartesian(List{2, 3});  // index 1, 1
  EXPECT_EQ(grid.neighbors(0), std::pair(1, -1));
  EXPECT_EQ(grid.neighbors(1), std::pair(3, 5));
  EXPECT_EQ(world(0, 6).cartesian(List{2, 3}).neighbors(1), std::pair(-1, 1));
  EXPECT_EQ(world(0, 6).inclusive(List{1, 2}).neighbors(0), std::pair(-1, -1));
  refuse("partition.neighbors: dim 2 is outside [0, 2)", [&] { grid.neighbors(2); });
}

TEST(Partition, ASubtopologySharesTheOtherDims) {
  const Partition grid = world(8, 12).cartesian(List{2, 2, 3});  // index 1, 0, 2
  EXPECT_EQ(grid.subtopology(List{2}).ranks(), (List{6, 7, 8}));
  EXPECT_EQ(grid.subtopology(List{2}).rank(), 2);
  EXPECT_EQ(grid.subtopology(List{0}).ranks(), (List{2, 8}));
  const Partition plane = grid.subtopology(List{2, 0});
  EXPECT_EQ(plane.ranks(), (List{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(plane.shape(), (List{2, 3}));
  EXPECT_EQ(plane.index(), (List{1, 2}));
  const Partition outside =
      world(0, 5).inclusive(List{1, 2, 3, 4}).cartesian(List{2, 2}).subtopology(List{0});
  EXPECT_EQ(outside.size(), 0);
  EXPECT_FALSE(outside.active());
}

TEST(Partition, RefusalsNameTheNumbers) {
  const Partition all = world(0, 6);
  refuse("partition.inclusive: the list of workers is empty", [&] { all.inclusive(List{}); });
  refuse("partition.inclusive: worker 2 is listed twice", [&] { all.inclusive(List{2, 2}); });
  refuse("partition.inclusive: worker 6 is outside [0, 6)", [&] { all.inclusive(List{6}); });
  refuse("partition.inclusive: worker -1 is outside [0, 6)", [&] { all.inclusive(List{-1}); });
  refuse("partition.cartesian: a grid of [2, 2] has 4 places, but the partition has 6 workers", [&] {
    all.cartesian(List{2, 2});
  });
  refuse("partition.cartesian: 0 dims, not 1 to 8", [&] { all.cartesian(List{}); });
  refuse("partition.cartesian: a dim of [6, 0] is below 1", [&] { all.cartesian(List{6, 0}); });
  refuse("partition.subtopology: no dim is kept", [&] { all.subtopology(List{}); });
  refuse("partition.subtopology: dim 1 is outside [0, 1)", [&] { all.subtopology(List{1}); });
  refuse("partition.subtopology: dim 0 is named twice", [&] { all.subtopology(List{0, 0}); });
  refuse("the partitions are of two gangs", [&] { all.unite(world(0, 6)); });
  const List axes = {0};
  refuse("all_gather: axes and axes_keep are both given", [&] { all.dims_of("all_gather", &axes, &axes); });
  refuse("all_gather: neither axes nor axes_keep is given",
         [&] { all.dims_of("all_gather", nullptr, nullptr); });
}

}  // namespace
}  // namespace gangway
