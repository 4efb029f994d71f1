#include "tensor/layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/expect_error.h"

namespace gangway {
namespace {

using Bounds = std::vector<int64_t>;
using Elements = std::vector<int64_t>;

constexpr int64_t kSizes[] = {0, 1, 2, 5, 7, 8, 33};
constexpr int64_t kRanks[] = {1, 2, 3, 4, 7, 8};

// Coordinate of element `i` of a row-major tensor along `dim`.
int64_t row_of(const Shape& shape, int64_t i, int dim) { return i / shape.count_from(dim + 1) % shape[dim]; }

// The elements of a tensor that lie in the box, by looking at each of them.
Elements elements_in(const Shape& shape, const Box& box) {
  Elements inside;
  for (int64_t i = 0; i < shape.count(); ++i) {
    bool in = true;
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t row = row_of(shape, i, d);
      in = in && row >= box.first[static_cast<size_t>(d)] && row < box.last(d);
    }
    if (in) inside.push_back(i);
  }
  return inside;
}

// The elements of the rows [first, last) of `dim` of what `from` has left of the tensor.
Elements rows_left(const Shape& shape, const Elements& from, int dim, int64_t first, int64_t last) {
  Bounds rows;  // of the tensor, that are left
  for (const int64_t i : from) rows.push_back(row_of(shape, i, dim));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  Elements left;
  for (const int64_t i : from) {
    const auto at = std::lower_bound(rows.begin(), rows.end(), row_of(shape, i, dim)) - rows.begin();
    if (at >= first && at < last) left.push_back(i);
  }
  return left;
}

Elements all_elements(const Shape& shape) {
  Elements all(static_cast<size_t>(shape.count()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// --- bounds

TEST(Layout, FsdpSplitsInPiecesOfTheCeilingAndTrailingRanksMayHoldNone) {
  EXPECT_EQ(ceil_bounds(5, 4), (Bounds{0, 2, 4, 5, 5}));
  EXPECT_EQ(ceil_bounds(0, 3), (Bounds{0, 0, 0, 0}));
  EXPECT_EQ(ceil_bounds(1, 8), (Bounds{0, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ceil_bounds(8, 4), (Bounds{0, 2, 4, 6, 8}));
  EXPECT_EQ(ceil_bounds(7, 1), (Bounds{0, 7}));
  EXPECT_EQ(ceil_bounds(9, 4), (Bounds{0, 3, 6, 9, 9}));
}

TEST(Layout, TheBalancedSplitGivesTheFirstOnesOneMore) {
  EXPECT_EQ(balanced_bounds(5, 4), (Bounds{0, 2, 3, 4, 5}));
  EXPECT_EQ(balanced_bounds(11, 3), (Bounds{0, 4, 8, 11}));
  EXPECT_EQ(balanced_bounds(2, 4), (Bounds{0, 1, 2, 2, 2}));
  EXPECT_EQ(balanced_bounds(0, 2), (Bounds{0, 0, 0}));
}

TEST(Layout, BoundsOfEverySizeRiseFromZeroInPiecesThatFit) {
  for (const int64_t n : kSizes)
    for (const int64_t ranks : kRanks)
      for (const bool ceiling : {false, true}) {
        const Bounds bounds = ceiling ? ceil_bounds(n, ranks) : balanced_bounds(n, ranks);
        ASSERT_EQ(bounds.size(), static_cast<size_t>(ranks) + 1);
        EXPECT_EQ(bounds.front(), 0);
        EXPECT_EQ(bounds.back(), n);
        const int64_t most = (n + ranks - 1) / ranks;
        for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
          const int64_t rows = bounds[r + 1] - bounds[r];
          EXPECT_LE(rows, most) << n << " over " << ranks;
          if (ceiling)  // all pieces are full until the rows run out, so padded ones lie one after the other
            EXPECT_EQ(bounds[r], std::min(n, static_cast<int64_t>(r) * most));
          else
            EXPECT_GE(rows, n / ranks) << n << " over " << ranks;
        }
      }
}

// --- boxes

TEST(Layout, WithoutPlacementsEveryRankHasTheWholeTensor) {
  const Shape shape{3, 5};
  EXPECT_EQ(local_box({}, shape, {}).shape, shape);
  const Layout equal = {Placement::replicate("tp"), Placement::partial("cp")};
  const std::vector<int> place = {1, 2};
  EXPECT_EQ(elements_in(shape, local_box(equal, shape, place)), all_elements(shape));
}

TEST(Layout, OneAxisSplitsAnyDimInPiecesThatMakeUpTheTensor) {
  for (const int64_t n : kSizes)
    for (int dim = 0; dim < 3; ++dim)
      for (const int64_t ranks : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}}) {
        Shape shape{2, 3, 4};
        shape[dim] = n;
        const Bounds bounds = balanced_bounds(n, ranks);
        const Layout layout = {Placement::shard("tp", dim, bounds)};
        std::vector<int> owners(static_cast<size_t>(shape.count()));
        for (int r = 0; r < ranks; ++r) {
          const Box box = local_box(layout, shape, std::vector<int>{r});
          EXPECT_EQ(elements_in(shape, box),
                    rows_left(shape, all_elements(shape), dim, bounds[static_cast<size_t>(r)],
                              bounds[static_cast<size_t>(r) + 1]));
          for (const int64_t i : elements_in(shape, box)) ++owners[static_cast<size_t>(i)];
        }
        EXPECT_EQ(owners, std::vector<int>(owners.size(), 1)) << shape.text() << " dim " << dim;
      }
}

// The inner bounds count in what the outer split left to this rank, on the same dim or on another.
TEST(Layout, TwoAxesSplitOneAfterTheOther) {
  for (const int64_t n : kSizes)
    for (int outer_dim = 0; outer_dim < 2; ++outer_dim)
      for (int inner_dim = 0; inner_dim < 2; ++inner_dim)
        for (const int64_t tp : {int64_t{1}, int64_t{2}, int64_t{3}}) {
          const Shape shape{n, 5};
          const int64_t data = 4;
          const Bounds outer = balanced_bounds(shape[outer_dim], tp);
          std::vector<int> owners(static_cast<size_t>(shape.count()));
          for (int t = 0; t < tp; ++t)
            for (int d = 0; d < data; ++d) {
              const int64_t first = outer[static_cast<size_t>(t)], last = outer[static_cast<size_t>(t) + 1];
              const Bounds inner =
                  ceil_bounds(inner_dim == outer_dim ? last - first : shape[inner_dim], data);
              Layout layout = {Placement::shard("tp", outer_dim, outer),
                               Placement::shard("dp_shard", inner_dim, inner)};
              layout[1].at_rest = true;
              const std::vector<int> place = {t, d};
              check(layout, shape, place, "p");
              const Elements used = rows_left(shape, all_elements(shape), outer_dim, first, last);
              const Elements own = elements_in(shape, local_box(layout, shape, place));
              EXPECT_EQ(elements_in(shape, compute_box(layout, shape, place)), used);
              EXPECT_EQ(own, rows_left(shape, used, inner_dim, inner[static_cast<size_t>(d)],
                                       inner[static_cast<size_t>(d) + 1]));
              for (const int64_t i : own) ++owners[static_cast<size_t>(i)];
            }
          EXPECT_EQ(owners, std::vector<int>(owners.size(), 1))
              << shape.text() << " dims " << outer_dim << " and " << inner_dim << ", tp " << tp;
        }
}

// --- runs

TEST(Layout, RunsAreTheElementsOfABoxInOrderAndAsLongAsTheyCanBe) {
  for (const Shape& shape : {Shape{7}, Shape{1}, Shape{0}, Shape{5, 4}, Shape{3, 4, 5}, Shape{2, 3, 2, 3}})
    for (int64_t cut = 0; cut < 27; ++cut) {  // first and last row of the first three dims, moved by 0, 1, 2
      Box box = whole_box(shape);
      int64_t rest = cut;
      for (int d = 0; d < std::min(shape.rank(), 3); ++d, rest /= 3) {
        const int64_t first = std::min(rest % 3, shape[d]);
        box.first[static_cast<size_t>(d)] = first == 2 ? 0 : first;
        box.shape[d] = shape[d] - first;  // 2: the last two rows are left out
        if (first == 2) box.shape[d] = std::max<int64_t>(0, shape[d] - 2);
      }
      Elements walked;
      int64_t expected_local = 0, end = -1;
      for_each_run(shape, box, [&](int64_t global, int64_t local, int64_t count) {
        EXPECT_GT(count, 0);
        EXPECT_EQ(local, expected_local);
        EXPECT_NE(global, end) << "two runs that are one: " << shape.text() << " " << cut;
        for (int64_t i = 0; i < count; ++i) walked.push_back(global + i);
        expected_local += count;
        end = global + count;
      });
      EXPECT_EQ(walked, elements_in(shape, box)) << shape.text() << " " << cut;
    }
}

TEST(Layout, ASliceIsTheBoxOfTheTensor) {
  const std::shared_ptr<Device> cpu = make_device("cpu");
  const Shape shape{4, 5};
  const Tensor whole = Tensor::allocate(cpu->allocator(), DType::i64, shape);
  std::iota(whole.data<int64_t>(), whole.data<int64_t>() + whole.count(), int64_t{0});
  const Layout layout = {Placement::shard("tp", 1, {0, 2, 5}), Placement::shard("dp_shard", 0, {0, 3, 4})};
  for (int t = 0; t < 2; ++t)
    for (int d = 0; d < 2; ++d) {
      const Box box = local_box(layout, shape, std::vector<int>{t, d});
      const Tensor part = slice(whole, box);
      EXPECT_EQ(part.shape(), box.shape);
      Elements seen;
      for (int64_t i = 0; i < part.dim(0); ++i)
        for (int64_t j = 0; j < part.dim(1); ++j)
          seen.push_back(part.data<int64_t>()[i * part.stride(0) + j * part.stride(1)]);
      EXPECT_EQ(seen, elements_in(shape, box));
    }
}

// --- facts and refusals

TEST(Layout, NamesTheAxesThatSplit) {
  const Layout layout = {Placement::shard("tp", 1, {0, 2}), Placement::partial("pp"),
                         Placement::shard("dp_shard+cp", 0, {0, 1})};
  EXPECT_EQ(shard_axes(layout), "tp+dp_shard+cp");
  EXPECT_EQ(shard_axes({Placement::replicate("tp")}), "");
  EXPECT_EQ(find_axis(layout, "cp"), &layout[2]);
  EXPECT_EQ(find_axis(layout, "pp"), &layout[1]);
  EXPECT_EQ(find_axis(layout, "dp"), nullptr) << "a part of a name is another axis";
}

TEST(Layout, DescribesItselfAsText) {
  EXPECT_EQ(describe(Layout{}), "replicated");
  const Layout layout = {Placement::shard("tp", 1, {0, 2, 4}), Placement::shard("dp_shard", 0, {0, 1, 2}),
                         Placement::partial("cp"), Placement::replicate("pp")};
  EXPECT_EQ(describe(layout), "tp: Shard(1), dp_shard: Shard(0), cp: Partial, pp: Replicate");
}

TEST(Layout, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const auto refused = [](Layout layout, std::vector<int> place, const char* part) {
    const Error error = test::error_of([&] { check(layout, Shape{6, 4}, place, "w"); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("parameter w"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  };
  refused({Placement::shard("tp", 2, {0, 4})}, {0}, "has no dim 2");
  refused({Placement::shard("tp", -1, {0, 4})}, {0}, "has no dim -1");
  refused({Placement::shard("tp", 0, {0, 4})}, {0}, "from 0 to 6");
  refused({Placement::shard("tp", 0, {1, 6})}, {0}, "from 0 to 6");
  refused({Placement::shard("tp", 0, {0, 5, 3, 6})}, {0}, "from 0 to 6");
  refused({Placement::shard("tp", 0, {0})}, {0}, "from 0 to 6");
  refused({Placement::shard("tp", 0, {0, 3, 6})}, {2}, "2 pieces over tp");
  refused({Placement::shard("tp", 0, {0, 3, 6})}, {-1}, "index -1");
  refused({Placement::shard("tp", 0, {0, 6}), Placement::replicate("tp")}, {0, 0}, "over tp and tp");
  refused({Placement::shard("dp_shard+cp", 0, {0, 6}), Placement::partial("cp")}, {0, 0}, "and cp share");
  refused({Placement::partial("cp"), Placement::shard("dp_shard+cp", 0, {0, 6})}, {0, 0}, "over cp and");
  refused({Placement::shard("tp", 0, {0, 2, 6}), Placement::shard("cp", 0, {0, 6})}, {1, 0}, "from 0 to 4");
  Placement rest = Placement::shard("dp_shard", 0, {0, 6});
  rest.at_rest = true;
  refused({rest, Placement::replicate("tp")}, {0, 0}, "must come before dp_shard");
}

}  // namespace
}  // namespace gangway
