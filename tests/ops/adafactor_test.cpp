// The three operations of Adafactor beside the plain formula.
#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Case {
  int64_t matrices, rows, columns;
};
constexpr Case kCases[] = {{0, 3, 2},  {1, 0, 4},     {1, 1, 1},   {1, 7, 5},
                           {3, 4, 70}, {1, 300, 513}, {1, 5, 2000}};

std::string describe(const Case& c) {
  return std::to_string(c.matrices) + " x " + std::to_string(c.rows) + " x " + std::to_string(c.columns);
}

TEST(FactorSums, AddsTheSquaresOfRowsAndColumns) {
  for (cpu::Isa isa : available_isas())
    for (DType dtype : kFloats)
      for (const Case& c : kCases) {
        Bench bench(isa, 2);
        const Tensor g = random_tensor(bench, dtype, {c.matrices, c.rows, c.columns}, 1);
        const auto row_count = static_cast<size_t>(c.matrices * c.rows);
        const auto column_count = static_cast<size_t>(c.matrices * c.columns);
        std::vector<double> rows(row_count, 0.25), columns(column_count, 0.5);
        FactorSumsArgs args;
        args.g = g;
        args.rows = tensor(bench, DType::f64, {c.matrices, c.rows}, rows);
        args.columns = tensor(bench, DType::f64, {c.matrices, c.columns}, columns);
        args.g_factor = 0.5;
        const std::vector<double> x = values(g);
        for (size_t i = 0; i < x.size(); ++i) {
          const auto at = static_cast<int64_t>(i), row = at / c.columns;
          rows[static_cast<size_t>(row)] += 0.25 * x[i] * x[i];
          columns[static_cast<size_t>(row / c.rows * c.columns + at % c.columns)] += 0.25 * x[i] * x[i];
        }
        bench.ops->factor_sums(args, bench.stream());
        expect_close(args.rows, rows, 1e-12, label(isa, dtype) + " rows " + describe(c));
        expect_close(args.columns, columns, 1e-12, label(isa, dtype) + " columns " + describe(c));
      }
}

TEST(FactorSums, HaveTheSameBitsForEveryThreadCount) {
  for (cpu::Isa isa : available_isas()) {
    std::vector<std::vector<double>> rows, columns;
    for (int threads : {1, 2, 3}) {
      Bench bench(isa, threads);
      FactorSumsArgs args;
      args.g = random_tensor(bench, DType::f32, {1, 200, 300}, 1);
      args.rows = tensor(bench, DType::f64, {1, 200}, std::vector<double>(200, 0));
      args.columns = tensor(bench, DType::f64, {1, 300}, std::vector<double>(300, 0));
      bench.ops->factor_sums(args, bench.stream());
      rows.push_back(values(args.rows));
      columns.push_back(values(args.columns));
    }
    for (size_t i : {1, 2}) {
      EXPECT_EQ(rows[i], rows[0]);
      EXPECT_EQ(columns[i], columns[0]);
    }
  }
}

// The update of every element, in f64.
std::vector<double> updates(const AdafactorNormArgs& args) {
  const std::vector<double> g = values(args.g), rows = values(args.rows);
  const std::vector<double> columns = args.columns ? values(args.columns) : std::vector<double>();
  const std::vector<double> totals = args.columns ? values(args.totals) : std::vector<double>();
  const int64_t row_count = args.g.dim(1), column_count = args.g.dim(2);
  std::vector<double> u;
  for (size_t i = 0; i < g.size(); ++i) {
    const auto at = static_cast<int64_t>(i), row = at / column_count, matrix = row / row_count;
    double v = rows[static_cast<size_t>(row)];
    if (args.columns) {
      const double mean = totals[static_cast<size_t>(matrix)] / static_cast<double>(args.row_count);
      v *= columns[static_cast<size_t>(matrix * column_count + at % column_count)] /
           std::max(mean, args.least);
    }
    u.push_back(g[i] * args.g_factor / std::sqrt(std::max(v, args.least * args.least)));
  }
  return u;
}

std::vector<double> positive(size_t count, uint32_t seed) {
  std::vector<double> all = random_values(count, seed);
  for (double& x : all) x = x * x + 0.01;
  return all;
}

AdafactorArgs arguments(Bench& bench, const Case& c, DType p, DType g, bool factored) {
  const auto row_count = static_cast<size_t>(c.matrices * c.rows);
  const auto column_count = static_cast<size_t>(c.matrices * c.columns);
  AdafactorArgs args;
  AdafactorNormArgs& u = args.update;
  u.g = random_tensor(bench, g, {c.matrices, c.rows, c.columns}, 1);
  u.rows = tensor(bench, p, {c.matrices, c.rows}, positive(row_count, 2));
  if (factored) {
    u.columns = tensor(bench, p, {c.matrices, c.columns}, positive(column_count, 3));
    u.totals = tensor(bench, DType::f64, {c.matrices}, positive(static_cast<size_t>(c.matrices), 4));
  }
  u.squares = tensor(bench, DType::f64, {1}, {0.5});
  u.g_factor = 0.5;
  u.least = 1e-7;
  u.row_count = c.rows + 3;  // some of which other ranks have
  args.p = random_tensor(bench, p, {u.g.count()}, 5);
  args.copy = bench.empty(DType::bf16, {u.g.count()});
  args.p_squares = tensor(bench, DType::f64, {1}, {700});
  args.control = {.lr = 0.01, .step = 3};
  args.lr_scale = 0.7;
  args.weight_decay = 0.1;
  args.threshold = 1.5;
  args.count = u.g.count() + 100;
  return args;
}

void expect_update(Bench& bench, const Case& c, DType p, DType g, bool factored, const std::string& what) {
  const AdafactorArgs args = arguments(bench, c, p, g, factored);
  const std::vector<double> u = updates(args.update);
  double squares = 0.5;
  for (const double x : u) squares += x * x;
  bench.ops->adafactor_norm(args.update, bench.stream());
  ASSERT_NEAR(element(args.update.squares, 0), squares, (p == DType::f64 ? 1e-12 : 1e-5) * squares) << what;

  const auto count = static_cast<double>(args.count);
  const double rate = std::max(1e-3, std::sqrt(700 / count)) * std::min(0.007, 1 / std::sqrt(3.0)) /
                      std::max(1.0, std::sqrt(element(args.update.squares, 0) / count) / 1.5);
  std::vector<double> want = values(args.p);
  for (size_t i = 0; i < want.size(); ++i) want[i] = want[i] * (1 - 0.0007) - rate * u[i];
  bench.ops->adafactor(args, bench.stream());
  expect_close(args.p, want, p == DType::f64 ? 1e-13 : 1e-6, what);
  const std::vector<double> stepped = values(args.p), copy = values(args.copy);
  for (size_t i = 0; i < stepped.size(); ++i) ASSERT_EQ(copy[i], rounded(DType::bf16, stepped[i])) << what;
}

TEST(Adafactor, FollowsThePlainFormula) {
  for (cpu::Isa isa : available_isas())
    for (DType p : {DType::f32, DType::f64})
      for (DType g : {DType::f32, DType::f64, DType::bf16})
        for (const Case& c : kCases) {
          Bench bench(isa, 2);
          expect_update(bench, c, p, g, /*factored=*/true, label(isa, p) + " " + describe(c));
        }
}

TEST(Adafactor, TakesVectorsUnfactored) {
  for (cpu::Isa isa : available_isas())
    for (DType p : {DType::f32, DType::f64})
      for (int64_t count : {0, 1, 7, 9001}) {
        Bench bench(isa, 2);
        expect_update(bench, {count, 1, 1}, p, DType::f32, /*factored=*/false, label(isa, p));
      }
}

TEST(DivideByNorm, DividesByTheNormOrTheLeast) {
  for (cpu::Isa isa : available_isas())
    for (DType dtype : kFloats)
      for (int64_t count : {0, 1, 513, 9001}) {
        Bench bench(isa, 2);
        const Tensor y = random_tensor(bench, dtype, {count}, 1);
        std::vector<double> want = values(y);
        const double tolerance = dtype == DType::f64 ? 1e-14 : std::max(1e-6, 2 * rounding_of(dtype));
        bench.ops->divide_by_norm({.y = y, .power = tensor(bench, DType::f64, {1}, {16}), .least = 3},
                                  bench.stream());
        for (double& x : want) x /= 4;
        expect_close(y, want, tolerance, label(isa, dtype));
        bench.ops->divide_by_norm({.y = y, .power = tensor(bench, DType::f64, {1}, {0}), .least = 0.5},
                                  bench.stream());
        for (double& x : want) x *= 2;
        expect_close(y, want, tolerance, label(isa, dtype));
      }
}

}  // namespace
}  // namespace gangway
