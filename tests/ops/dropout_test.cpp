#include "base/philox.h"
#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

using Values = std::vector<double>;

constexpr uint64_t kKey = 0x123456789abcdef1;

Values reference(const DropoutArgs& args) {
  Values y = values(args.x);
  const Values rows = args.rows ? values(args.rows) : Values{};
  const size_t width = static_cast<size_t>(args.x.dim(1));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t row =
        args.rows ? static_cast<int64_t>(rows[i / width]) : args.first_row + static_cast<int64_t>(i / width);
    const int64_t element = row * args.columns + args.first_column + static_cast<int64_t>(i % width);
    y[i] = philox_uniform(args.key, static_cast<uint64_t>(element)) < args.probability
               ? 0
               : y[i] / (1 - args.probability);
  }
  return y;
}

class Dropout : public EachIsa {};

TEST_P(Dropout, MatchesTheFormula) {
  for (int threads : {1, 3})
    for (DType dtype : kFloats)
      for (const Shape& shape : {Shape{0, 3}, Shape{1, 1}, Shape{5, 9}, Shape{3, 256}, Shape{40, 701}})
        for (const double probability : {0.0, 0.1, 0.75}) {
          Bench bench(GetParam(), threads);
          const Tensor x = random_tensor(bench, dtype, shape, 1), y = bench.empty(dtype, shape);
          const DropoutArgs args{.x = x,
                                 .y = y,
                                 .rows = {},
                                 .key = kKey,
                                 .probability = probability,
                                 .first_row = 7,
                                 .first_column = 3,
                                 .columns = shape[1] + 8};
          bench.ops->dropout(args, bench.stream());
          const std::string what =
              label(GetParam(), dtype) + " " + shape.text() + " " + std::to_string(probability);
          const Values want = reference(args), got = values(y);
          expect_close(got, want, tolerance_of(dtype), what);
          for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i] == 0, want[i] == 0) << what << " " << i;
          bench.ops->dropout({.x = x,
                              .y = x,
                              .rows = {},
                              .key = kKey,
                              .probability = probability,
                              .first_row = 7,
                              .first_column = 3,
                              .columns = shape[1] + 8},
                             bench.stream());
          EXPECT_TRUE(same_bits(x, y)) << what << " in place";
        }
}

// Ranks may have some columns of each row, and microbatches rows in any order: the bits stay the same.
TEST_P(Dropout, NoSplitOfTheBatchChangesABit) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    const Tensor x = random_tensor(bench, dtype, {6, 31}, 1), whole = bench.empty(dtype, {6, 31});
    bench.ops->dropout({.x = x, .y = whole, .rows = {}, .key = kKey, .probability = 0.5, .columns = 31},
                       bench.stream());
    for (const int64_t cut : {1, 8, 30})
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, 31}}) {
        const Tensor part = tensor(bench, dtype, {6, last - first}, values(x.slice(1, first, last)));
        bench.ops->dropout({.x = part,
                            .y = part,
                            .rows = {},
                            .key = kKey,
                            .probability = 0.5,
                            .first_column = first,
                            .columns = 31},
                           bench.stream());
        EXPECT_EQ(values(part), values(whole.slice(1, first, last))) << label(GetParam(), dtype) << cut;
      }
    const std::vector<int64_t> order = {4, 0, 5};
    const Tensor rows = bench.empty(dtype, {3, 31}), y = bench.empty(dtype, {3, 31});
    for (int64_t t = 0; t < 3; ++t)
      assign(rows.slice(0, t, t + 1),
             values(x.slice(0, order[static_cast<size_t>(t)], order[static_cast<size_t>(t)] + 1)));
    bench.ops->dropout(
        {.x = rows, .y = y, .rows = ids_tensor(bench, order), .key = kKey, .probability = 0.5, .columns = 31},
        bench.stream());
    for (int64_t t = 0; t < 3; ++t) {
      const int64_t row = order[static_cast<size_t>(t)];
      EXPECT_EQ(values(y.slice(0, t, t + 1)), values(whole.slice(0, row, row + 1)))
          << label(GetParam(), dtype) << t;
    }
  }
}

TEST_P(Dropout, DropsItsShareOfTheElements) {
  Bench bench(GetParam());
  const Tensor x = tensor(bench, DType::f32, {100, 100}, Values(10000, 1)),
               y = bench.empty(DType::f32, {100, 100});
  for (const double probability : {0.1, 0.5}) {
    bench.ops->dropout({.x = x, .y = y, .rows = {}, .key = 5, .probability = probability, .columns = 100},
                       bench.stream());
    const Values got = values(y);
    const double dropped = static_cast<double>(std::count(got.begin(), got.end(), 0.0)) / 10000;
    EXPECT_NEAR(dropped, probability, 0.02);
  }
}

TEST_P(Dropout, WhatIsDroppedIsZeroWhateverItWas) {
  Bench bench(GetParam());
  const Tensor x = tensor(bench, DType::f32, {1, 64}, Values(64, NAN)), y = bench.empty(DType::f32, {1, 64});
  const DropoutArgs args{.x = x, .y = y, .rows = {}, .key = kKey, .probability = 0.5, .columns = 64};
  bench.ops->dropout(args, bench.stream());
  for (int64_t i = 0; i < 64; ++i)
    EXPECT_EQ(element(y, i) == 0, philox_uniform(kKey, static_cast<uint64_t>(i)) < 0.5) << i;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Dropout, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
