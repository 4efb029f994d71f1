#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

std::vector<int64_t> some_ids(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<int64_t>(t * t * 31 + t * 7) % vocabulary;
  return ids;
}

class Embedding : public EachIsa {};

TEST_P(Embedding, ForwardCopiesRows) {
  for (int threads : {1, 2, 3})
    for (DType dtype : kFloats)
      for (int64_t tokens : {0, 1, 7, 1000})
        for (int64_t width : {1, 5, 130}) {
          Bench bench(GetParam(), threads);
          const std::vector<int64_t> ids = some_ids(tokens, 13);
          const Tensor table = random_tensor(bench, dtype, {13, width}, 1),
                       y = bench.empty(dtype, {tokens, width});
          bench.ops->embedding({table, ids_tensor(bench, ids), y}, bench.stream());
          const std::vector<double> rows = values(table), got = values(y);
          const size_t w = static_cast<size_t>(width);
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], rows[static_cast<size_t>(ids[i / w]) * w + i % w]) << i;
        }
}

TEST_P(Embedding, AnIdOutsideTheTableGivesNanAndNoGradient) {
  for (DType dtype : kFloats)
    for (const int64_t outside : {int64_t{-1}, int64_t{13}, INT64_MAX}) {
      Bench bench(GetParam());
      const Tensor ids = ids_tensor(bench, {3, outside}), y = bench.empty(dtype, {2, 5});
      bench.ops->embedding({random_tensor(bench, dtype, {13, 5}, 1), ids, y}, bench.stream());
      for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(std::isnan(element(y, i)), i >= 5);
      const Tensor dtable = random_tensor(bench, accumulator_of(dtype), {13, 5}, 2);
      const std::vector<double> before = values(dtable);
      bench.ops->embedding_backward({ids.slice(0, 1, 2), random_tensor(bench, dtype, {1, 5}, 3), dtable},
                                    bench.stream());
      EXPECT_EQ(values(dtable), before);
    }
}

// Two parts of one table: their rows sum up to the whole table's, and their gradients are its parts.
TEST_P(Embedding, PartsOfATableSumUpToTheWhole) {
  for (DType dtype : kFloats)
    for (const int64_t cut : {1, 6, 12}) {
      Bench bench(GetParam());
      const std::vector<int64_t> all = {0, 5, 12, 6, 5, 1, 11};
      const int64_t tokens = static_cast<int64_t>(all.size());
      const Tensor ids = ids_tensor(bench, all), table = random_tensor(bench, dtype, {13, 5}, 1);
      const Tensor dy = random_tensor(bench, dtype, {tokens, 5}, 2), whole = bench.empty(dtype, {tokens, 5});
      bench.ops->embedding({table, ids, whole}, bench.stream());
      const Tensor gradient = random_tensor(bench, accumulator_of(dtype), {13, 5}, 3);
      const Tensor parts = bench.empty(accumulator_of(dtype), {13, 5});
      bench.ops->cast(gradient, parts, bench.stream());
      bench.ops->embedding_backward({ids, dy, gradient}, bench.stream());
      std::vector<double> sum(static_cast<size_t>(whole.count()));
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, 13}}) {
        const Tensor y = bench.empty(dtype, {tokens, 5});
        bench.ops->embedding({table.slice(0, first, last), ids, y, first, 13}, bench.stream());
        const std::vector<double> got = values(y);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += got[i];
        bench.ops->embedding_backward({ids, dy, parts.slice(0, first, last), first}, bench.stream());
      }
      EXPECT_EQ(sum, values(whole));
      EXPECT_EQ(values(parts), values(gradient));
    }
}

TEST_P(Embedding, AnIdOutsideAllPartsGivesNanAndNoGradient) {
  for (const int64_t outside : {int64_t{-1}, int64_t{13}, INT64_MAX, INT64_MIN}) {
    Bench bench(GetParam());
    const Tensor ids = ids_tensor(bench, {outside}), y = bench.empty(DType::f32, {1, 5});
    bench.ops->embedding({random_tensor(bench, DType::f32, {6, 5}, 1), ids, y, 7, 13}, bench.stream());
    for (int64_t i = 0; i < 5; ++i) EXPECT_TRUE(std::isnan(element(y, i))) << outside;
    const Tensor dtable = random_tensor(bench, DType::f32, {6, 5}, 2);
    const std::vector<double> before = values(dtable);
    bench.ops->embedding_backward({ids, random_tensor(bench, DType::f32, {1, 5}, 3), dtable, 7},
                                  bench.stream());
    EXPECT_EQ(values(dtable), before);
  }
}

// Sums in order of t in the accumulator's precision: an exact reference, the same for every number of
// threads.
TEST_P(Embedding, BackwardAddsRowsInOrder) {
  for (int threads : {1, 2, 3})
    for (DType dtype : kFloats)
      for (int64_t tokens : {0, 1, 333})
        for (int64_t width : {1, 5, 130, 300}) {
          Bench bench(GetParam(), threads);
          const std::vector<int64_t> ids = some_ids(tokens, 13);
          const Tensor dy = random_tensor(bench, dtype, {tokens, width}, 1);
          const Tensor dtable = random_tensor(bench, accumulator_of(dtype), {13, width}, 2);
          std::vector<double> want = values(dtable);
          const std::vector<double> given = values(dy);
          for (int64_t i = 0; i < dy.count(); ++i) {
            double& to = want[static_cast<size_t>(ids[static_cast<size_t>(i / width)] * width + i % width)];
            to += given[static_cast<size_t>(i)];
            if (dtype != DType::f64) to = static_cast<float>(to);
          }
          bench.ops->embedding_backward({ids_tensor(bench, ids), dy, dtable}, bench.stream());
          ASSERT_EQ(values(dtable), want)
              << label(GetParam(), dtype) << " " << dy.shape().text() << " threads " << threads;
        }
}

TEST_P(Embedding, GradientMatchesFiniteDifferences) {
  Bench bench(GetParam());
  const std::vector<int64_t> ids = {2, 0, 2, 2};
  for (int64_t width : {1, 3}) {
    const std::vector<double> table = random_values(static_cast<size_t>(3 * width), 1);
    const Tensor dy = random_tensor(bench, DType::f64, {4, width}, 2);
    const Tensor dtable =
        tensor(bench, DType::f64, {3, width}, std::vector<double>(static_cast<size_t>(3 * width), 0));
    bench.ops->embedding_backward({ids_tensor(bench, ids), dy, dtable}, bench.stream());
    expect_close(dtable,
                 numeric_gradient(table,
                                  [&](auto& moved) {
                                    const Tensor y = bench.empty(DType::f64, {4, width});
                                    bench.ops->embedding({tensor(bench, DType::f64, {3, width}, moved),
                                                          ids_tensor(bench, ids), y},
                                                         bench.stream());
                                    return dot(values(y), values(dy));
                                  }),
                 1e-7, "dtable");
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Embedding, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
