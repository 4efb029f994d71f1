// RMSNorm with weights that count from 1, and of rows that several ranks have in parts; dot products of rows.
#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

using Values = std::vector<double>;

constexpr double kEps = 1e-5;

Values row_dots(const Values& x, const Values& y, const Values& weight, double offset, size_t rows) {
  Values out(rows, 0);
  const size_t width = rows == 0 ? 0 : x.size() / rows;
  for (size_t i = 0; i < x.size(); ++i)
    out[i / width] += x[i] * y[i] * (weight.empty() ? 1 : offset + weight[i % width]);
  return out;
}

class RowDot : public EachIsa {};

TEST_P(RowDot, MatchesTheFormula) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (int64_t rows : {0, 1, 5})
      for (int64_t width : {1, 7, 33, 512})
        for (bool weighted : {false, true})
          for (bool same : {false, true}) {
            const Tensor x = random_tensor(bench, dtype, {rows, width}, 1);
            const Tensor y = same ? x : random_tensor(bench, dtype, {rows, width}, 2);
            const Tensor weight = weighted ? random_tensor(bench, dtype, {width}, 3) : Tensor{};
            const Tensor out = bench.empty(accumulator_of(dtype), {rows});
            bench.ops->row_dot({x, y, weight, out, 1}, bench.stream());
            expect_close(values(out),
                         row_dots(values(x), values(y), weighted ? values(weight) : Values{}, 1,
                                  static_cast<size_t>(rows)),
                         dtype == DType::f64 ? 1e-13 : 1e-5, label(GetParam(), dtype) + x.shape().text(), 10);
          }
}

TEST_P(RowDot, ThreadsDoNotChangeBits) {
  for (DType dtype : kFloats) {
    std::vector<Values> seen;
    for (int threads : {1, 2, 3}) {
      Bench bench(GetParam(), threads);
      const Tensor x = random_tensor(bench, dtype, {301, 200}, 1),
                   y = random_tensor(bench, dtype, {301, 200}, 2);
      const Tensor out = bench.empty(accumulator_of(dtype), {301});
      bench.ops->row_dot({x, y, {}, out}, bench.stream());
      seen.push_back(values(out));
      EXPECT_EQ(seen.back(), seen.front()) << label(GetParam(), dtype) << " threads " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowDot, all_isas(), isa_name);

class RmsNormParts : public EachIsa {};

// Weights w with offset 1 are the weights 1 + w without one.
TEST_P(RmsNormParts, AnOffsetAddsToEveryWeight) {
  Bench bench(GetParam());
  const int64_t rows = 5, width = 77;
  for (DType dtype : kFloats) {
    const Tensor x = random_tensor(bench, dtype, {rows, width}, 1),
                 dy = random_tensor(bench, dtype, x.shape(), 2);
    Values small, moved;
    for (int64_t d = 0; d < width; ++d) small.push_back(static_cast<double>(d % 9 - 4) / 8);
    for (const double w : small) moved.push_back(1 + w);
    const Tensor weight = tensor(bench, dtype, {width}, small), whole = tensor(bench, dtype, {width}, moved);
    const DType wide = accumulator_of(dtype);
    struct Run {
      Tensor y, rstd, dx, dweight, again;
    };
    const auto run = [&](const Tensor& w, double offset) {
      Run r{bench.empty(dtype, x.shape()), bench.empty(wide, {rows}), bench.empty(dtype, x.shape()),
            tensor(bench, wide, {width}, Values(static_cast<size_t>(width), 0)),
            bench.empty(dtype, x.shape())};
      bench.ops->rmsnorm({.x = x,
                          .residual = {},
                          .weight = w,
                          .y = r.y,
                          .sum = {},
                          .rstd = r.rstd,
                          .eps = kEps,
                          .offset = offset},
                         bench.stream());
      bench.ops->rmsnorm_backward({.dy = dy,
                                   .x = x,
                                   .weight = w,
                                   .rstd = r.rstd,
                                   .dsum = {},
                                   .dx = r.dx,
                                   .dweight = r.dweight,
                                   .y = r.again,
                                   .offset = offset},
                                  bench.stream());
      return r;
    };
    const Run want = run(whole, 0), got = run(weight, 1);
    EXPECT_TRUE(same_bits(got.y, want.y)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(got.again, want.y)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(got.rstd, want.rstd)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(got.dx, want.dx)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(got.dweight, want.dweight)) << label(GetParam(), dtype);
  }
}

Tensor sum_of(Bench& bench, const Tensor& a, const Tensor& b) {
  Values sum = values(a);
  const Values more = values(b);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return tensor(bench, a.dtype(), a.shape(), sum);
}

// Two ranks with a part of each row: sums of squares and of products are added, everything else is local.
TEST_P(RmsNormParts, PartsOfRowsGiveTheWholeRowsResult) {
  Bench bench(GetParam());
  const int64_t rows = 7, width = 50;
  for (DType dtype : kFloats)
    for (const int64_t cut : {1, 16, 33, 49}) {
      const DType wide = accumulator_of(dtype);
      const Tensor x = random_tensor(bench, dtype, {rows, width}, 1),
                   dy = random_tensor(bench, dtype, x.shape(), 2),
                   weight = random_tensor(bench, dtype, {width}, 3);
      const Tensor y = bench.empty(dtype, x.shape()), rstd = bench.empty(wide, {rows}),
                   dx = bench.empty(dtype, x.shape());
      bench.ops->rmsnorm({.x = x,
                          .residual = {},
                          .weight = weight,
                          .y = y,
                          .sum = {},
                          .rstd = rstd,
                          .eps = kEps,
                          .offset = 1},
                         bench.stream());
      bench.ops->rmsnorm_backward({.dy = dy,
                                   .x = x,
                                   .weight = weight,
                                   .rstd = rstd,
                                   .dsum = {},
                                   .dx = dx,
                                   .dweight = {},
                                   .y = {},
                                   .offset = 1},
                                  bench.stream());
      struct Part {
        Tensor x, dy, weight, squares, dots;
      };
      std::vector<Part> parts;
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, width}}) {
        const auto copy = [&](const Tensor& t) {
          return tensor(bench, dtype, {rows, last - first}, values(t.slice(1, first, last)));
        };
        Part p{copy(x), copy(dy), tensor(bench, dtype, {last - first}, values(weight.slice(0, first, last))),
               bench.empty(wide, {rows}), bench.empty(wide, {rows})};
        bench.ops->row_dot({p.x, p.x, {}, p.squares}, bench.stream());
        bench.ops->row_dot({p.x, p.dy, p.weight, p.dots, 1}, bench.stream());
        parts.push_back(p);
      }
      const Tensor squares = sum_of(bench, parts[0].squares, parts[1].squares),
                   dots = sum_of(bench, parts[0].dots, parts[1].dots);
      int64_t first = 0;
      for (const Part& p : parts) {
        const Tensor part_y = bench.empty(dtype, p.x.shape()), part_rstd = bench.empty(wide, {rows}),
                     part_dx = bench.empty(dtype, p.x.shape());
        bench.ops->rmsnorm({.x = p.x,
                            .residual = {},
                            .weight = p.weight,
                            .y = part_y,
                            .sum = {},
                            .rstd = part_rstd,
                            .eps = kEps,
                            .offset = 1,
                            .squares = squares,
                            .width = width},
                           bench.stream());
        bench.ops->rmsnorm_backward({.dy = p.dy,
                                     .x = p.x,
                                     .weight = p.weight,
                                     .rstd = part_rstd,
                                     .dsum = {},
                                     .dx = part_dx,
                                     .dweight = {},
                                     .y = {},
                                     .offset = 1,
                                     .dots = dots,
                                     .width = width},
                                    bench.stream());
        const int64_t last = first + p.x.dim(1);
        const std::string what = label(GetParam(), dtype) + " " + std::to_string(cut);
        // The sums differ by their rounding, which may turn the rounding of a result.
        const double tolerance = 2 * tolerance_of(dtype);
        expect_close(part_rstd, values(rstd), dtype == DType::f64 ? 1e-14 : 1e-6, "rstd " + what);
        expect_close(part_y, values(y.slice(1, first, last)), tolerance, "y " + what);
        expect_close(part_dx, values(dx.slice(1, first, last)), tolerance, "dx " + what);
        first = last;
      }
    }
}

TEST_P(RmsNormParts, AWidthBelowThePartIsRefused) {
  Bench bench(GetParam());
  const Tensor x = random_tensor(bench, DType::f32, {2, 8}, 1),
               weight = random_tensor(bench, DType::f32, {8}, 2);
  const Tensor y = bench.empty(DType::f32, {2, 8}), rstd = bench.empty(DType::f32, {2}),
               squares = bench.empty(DType::f32, {2});
  EXPECT_THROW(bench.ops->rmsnorm({.x = x,
                                   .residual = {},
                                   .weight = weight,
                                   .y = y,
                                   .sum = {},
                                   .rstd = rstd,
                                   .squares = squares,
                                   .width = 7},
                                  bench.stream()),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Kernels, RmsNormParts, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
