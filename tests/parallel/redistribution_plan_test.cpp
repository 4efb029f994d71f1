// Plans of redistributions: the moves, their axes and their boxes.
#include "parallel/redistribution_plan.h"

#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

Placement shard(const std::string& axis, int dim, std::vector<int64_t> bounds = {}) {
  return Placement::shard(axis, dim, std::move(bounds));
}
Placement varying(const std::string& axis) { return Placement::varying(axis); }
Placement partial(const std::string& axis) { return Placement::partial(axis); }

RankGrid one(int size, int index) { return {{{"tp", size, index}}}; }
RankGrid two(int a, int b, int index_a, int index_b) { return {{{"a", a, index_a}, {"b", b, index_b}}}; }

std::string moves(const Layout& from, const Layout& to, const RankGrid& grid, const Shape& local) {
  return plan_redistribution(from, to, grid, local).text();
}

TEST(RedistributionPlan, TheRowsOfTheTableAreOneMoveEach) {
  const RankGrid grid = one(3, 1);
  const Shape x{6, 6};
  EXPECT_EQ(moves({}, {varying("tp")}, grid, x), "none");
  EXPECT_EQ(moves({partial("tp")}, {varying("tp")}, grid, x), "all_reduce 0");
  EXPECT_EQ(moves({partial("tp")}, {}, grid, x), "all_reduce 0");
  EXPECT_EQ(moves({}, {shard("tp", 1)}, grid, x), "slice 0");
  EXPECT_EQ(moves({shard("tp", 1)}, {}, grid, x), "all_gather 0");
  EXPECT_EQ(moves({shard("tp", 1)}, {varying("tp")}, grid, x), "all_gather 0");
  EXPECT_EQ(moves({partial("tp")}, {shard("tp", 0)}, grid, x), "reduce_scatter 0");
  EXPECT_EQ(moves({shard("tp", 0)}, {shard("tp", 1)}, grid, x), "exchange 0");
  EXPECT_EQ(moves({shard("tp", 0)}, {shard("tp", 0)}, grid, x), "none");
  EXPECT_EQ(moves({partial("tp")}, {partial("tp")}, grid, x), "none");
}

TEST(RedistributionPlan, TheGradientGoesBetweenConjugateLayouts) {
  EXPECT_EQ(describe(conjugate({shard("a", 1), Placement::replicate("b"), partial("c"), varying("d")})),
            "a: Shard(1), b: Replicate, c: Varying, d: Partial");
}

TEST(RedistributionPlan, APieceThatOneRankHoldsIsBroadcastAndReduced) {
  const Layout at_1 = {shard("tp", 0, {0, 0, 5, 5})};
  for (const int rank : {0, 1, 2}) {
    const Shape own{rank == 1 ? 5 : 0, 2};
    const RedistributionPlan out = plan_redistribution(at_1, {varying("tp")}, one(3, rank), own);
    EXPECT_EQ(out.text(), "broadcast 0");
    EXPECT_EQ(out.moves[0].root, 1);
    EXPECT_EQ(out.after, (Shape{5, 2}));
    const RedistributionPlan back = plan_redistribution({partial("tp")}, at_1, one(3, rank), Shape{5, 2});
    EXPECT_EQ(back.text(), "reduce 0");
    EXPECT_EQ(back.moves[0].root, 1);
    EXPECT_EQ(back.after, own);
  }
}

TEST(RedistributionPlan, AnAxisOfOneRankTakesNoMove) {
  EXPECT_EQ(moves({partial("tp")}, {shard("tp", 1)}, one(1, 0), Shape{2, 3}), "none");
  EXPECT_EQ(moves({shard("a", 0)}, {}, two(1, 2, 0, 1), Shape{2, 3}), "none");
}

TEST(RedistributionPlan, UnevenPiecesHaveBoxesOfTheirOwn) {
  const RedistributionPlan plan = plan_redistribution({shard("tp", 1, {0, 3, 4, 4})},
                                                      {shard("tp", 0, {0, 1, 1, 5})}, one(3, 0), Shape{5, 3});
  ASSERT_EQ(plan.text(), "exchange 0");
  const Move& move = plan.moves[0];
  EXPECT_FALSE(move.equal);
  EXPECT_EQ(plan.after, (Shape{1, 4}));
  ASSERT_EQ(move.sent.size(), 3u);
  EXPECT_EQ(move.sent[0].shape, (Shape{1, 3}));
  EXPECT_EQ(move.sent[1].shape.count(), 0);
  EXPECT_EQ(move.sent[2].shape, (Shape{4, 3}));
  EXPECT_EQ(move.sent[2].first[0], 1);
  EXPECT_EQ(move.got[1].shape, (Shape{1, 1}));
  EXPECT_EQ(move.got[1].first[1], 3);
  EXPECT_EQ(move.got[2].shape.count(), 0);
}

TEST(RedistributionPlan, OtherBoundsOnOneDimAreAnExchangeOfTheirIntersections) {
  const Layout from = {shard("tp", 0, {0, 4, 7})}, to = {shard("tp", 0, {0, 2, 7})};
  const RedistributionPlan plan = plan_redistribution(from, to, one(2, 1), Shape{3});
  ASSERT_EQ(plan.text(), "exchange 0");
  EXPECT_EQ(plan.after, Shape{5});
  EXPECT_EQ(plan.moves[0].got[0].shape, Shape{2});
  EXPECT_EQ(plan.moves[0].got[1].shape, Shape{3});
  EXPECT_EQ(plan.moves[0].got[1].first[0], 2);
}

TEST(RedistributionPlan, SeveralAxesMoveOneByOneSmallestFirst) {
  const RankGrid grid = two(2, 3, 1, 2);
  EXPECT_EQ(moves({partial("a"), shard("b", 0)}, {shard("b", 0), shard("a", 0)}, grid, Shape{4, 2}),
            "reduce_scatter 0");
  EXPECT_EQ(moves({shard("a", 0), shard("b", 0)}, {}, grid, Shape{1, 2}), "all_gather 1, all_gather 0");
  EXPECT_EQ(moves({}, {shard("b", 0), shard("a", 0)}, grid, Shape{6, 2}), "slice 1, slice 0");
  EXPECT_EQ(moves({shard("a", 1), partial("b")}, {varying("a"), shard("b", 0)}, grid, Shape{6, 2}),
            "reduce_scatter 1, all_gather 0");
  // The bounds of the inner split count in the rows that the outer split leaves.
  const RedistributionPlan plan = plan_redistribution({shard("a", 0, {0, 4, 6}), shard("b", 0, {0, 1, 1, 2})},
                                                      {shard("a", 0, {0, 4, 6})}, grid, Shape{1, 2});
  EXPECT_EQ(plan.text(), "all_gather 1");
  EXPECT_EQ(plan.after, (Shape{2, 2}));
}

TEST(RedistributionPlan, SplitsThatChangePlacesAreOneExchangeOverTheGrid) {
  const Layout from = {shard("a", 0), shard("b", 0)}, to = {shard("b", 0), shard("a", 0)};
  int64_t rows = 0;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 3; ++k) {
      const RedistributionPlan plan = plan_redistribution(from, to, two(2, 3, i, k), Shape{2});
      ASSERT_EQ(plan.text(), "exchange grid");
      // Rank (i, k) held the rows from 2 (3 i + k) on and gets those from 2 (2 k + i) on. `holder` is the
      // rank that had these.
      const size_t holder = static_cast<size_t>(2 * k + i);
      for (size_t r = 0; r < 6; ++r) EXPECT_EQ(plan.moves[0].got[r].shape.count(), r == holder ? 2 : 0);
      rows += plan.after[0];
    }
  EXPECT_EQ(rows, 12);
}

TEST(RedistributionPlan, RefusalsNameLayoutsAndNumbers) {
  const auto refuse = [](const Layout& from, const Layout& to, const RankGrid& grid, const Shape& local,
                         std::initializer_list<const char*> parts) {
    expect_refusal(
        Code::invalid_argument, [&] { plan_redistribution(from, to, grid, local); }, parts);
  };
  refuse({}, {shard("tp", 1)}, one(2, 0), Shape{2, 5},
         {"redistribute replicated -> tp: Shard(1): dim 1 of [2, 5] has 5 rows to split over tp, not a "
          "multiple of "
          "its 2 ranks"});
  refuse({shard("tp", 2)}, {}, one(2, 0), Shape{2, 5}, {"[2, 5] has no dim 2 (tp)"});
  refuse({shard("dp", 0)}, {}, one(2, 0), Shape{2}, {"there is no axis dp in the grid (tp)"});
  refuse({shard("tp", 0), partial("tp")}, {}, one(2, 0), Shape{2}, {"two placements over tp"});
  refuse({}, {partial("tp")}, one(2, 0), Shape{2},
         {"no collective over tp makes tp: Partial of tp: Replicate"});
  refuse({varying("tp")}, {}, one(2, 0), Shape{2}, {"makes tp: Replicate of tp: Varying"});
  refuse({shard("tp", 0, {0, 1})}, {}, one(2, 0), Shape{1},
         {"2 bounds over tp, which has 2 ranks and needs 3"});
  refuse({shard("tp", 0, {0, 2, 1})}, {}, one(2, 0), Shape{2}, {"the bounds over tp must rise from 0"});
  refuse({shard("tp", 0, {0, 2, 3})}, {}, one(2, 1), Shape{2},
         {"rank 1 of tp holds 1 rows of dim 0, but got 2"});
  refuse({}, {shard("tp", 0, {0, 2, 3})}, one(2, 1), Shape{4},
         {"the bounds over tp end at 3, but dim 0 of [4] has 4 rows to split there"});
  Placement rest = shard("tp", 0);
  rest.at_rest = true;
  refuse({rest}, {}, one(2, 1), Shape{4}, {"is one at rest"});
  expect_refusal(
      Code::not_supported,
      [&] {
        plan_redistribution({shard("a", 0), shard("b", 0)}, {shard("b", 0)}, two(2, 2, 0, 0), Shape{2});
      },
      {"a cannot change in one move", "use two redistributions"});
}

}  // namespace
}  // namespace gangway::test
