#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

constexpr double kEps = 1e-5;

struct Reference {
  std::vector<double> sum, y, rstd;
};

// The formula of Zhang and Sennrich, row by row.
Reference reference(const std::vector<double>& x, const std::vector<double>& residual,
                    const std::vector<double>& weight) {
  const size_t width = weight.size(), rows = x.size() / width;
  Reference r{x, std::vector<double>(x.size()), std::vector<double>(rows)};
  for (size_t i = 0; i < residual.size(); ++i) r.sum[i] += residual[i];
  for (size_t t = 0; t < rows; ++t) {
    double squares = 0;
    for (size_t d = 0; d < width; ++d) squares += r.sum[t * width + d] * r.sum[t * width + d];
    r.rstd[t] = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (size_t d = 0; d < width; ++d) r.y[t * width + d] = r.sum[t * width + d] * r.rstd[t] * weight[d];
  }
  return r;
}

struct Norm {
  Norm(Bench& bench, DType dtype, int64_t rows, int64_t width, bool with_residual)
      : x(random_tensor(bench, dtype, {rows, width}, 1)),
        weight(random_tensor(bench, dtype, {width}, 2)),
        y(bench.empty(dtype, {rows, width})),
        rstd(bench.empty(accumulator_of(dtype), {rows})) {
    if (!with_residual) return;
    residual = random_tensor(bench, dtype, {rows, width}, 3);
    sum = bench.empty(dtype, {rows, width});
  }
  RmsNormArgs args() const { return {x, residual, weight, y, sum, rstd, kEps}; }
  Tensor stored() const { return residual ? sum : x; }

  Tensor x, weight, y, rstd, residual, sum;
};

class RmsNorm : public EachIsa {};

TEST_P(RmsNorm, ForwardMatchesTheFormula) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (int64_t rows : {0, 1, 5})
      for (int64_t width : {1, 7, 33, 512})
        for (bool with_residual : {false, true}) {
          Norm n(bench, dtype, rows, width, with_residual);
          bench.ops->rmsnorm(n.args(), bench.stream());
          const Reference want = reference(
              values(n.x), with_residual ? values(n.residual) : std::vector<double>{}, values(n.weight));
          const std::string what = label(GetParam(), dtype) + " " + n.x.shape().text();
          if (with_residual) expect_close(n.sum, want.sum, tolerance_of(dtype), "sum " + what);
          // y is made of the stored sum: of a residual it has that rounding too.
          expect_close(n.y, want.y, tolerance_of(dtype) + (with_residual ? rounding_of(dtype) : 0),
                       "y " + what);
          expect_close(n.rstd, want.rstd, tolerance_of(dtype), "rstd " + what);
        }
}

// A second pass over the stored sum gives the same bits: recomputation relies on it.
TEST_P(RmsNorm, ThePassOverTheStoredSumHasTheSameBits) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    Norm n(bench, dtype, 9, 77, true);
    bench.ops->rmsnorm(n.args(), bench.stream());
    const Tensor y = bench.empty(dtype, n.y.shape()), rstd = bench.empty(n.rstd.dtype(), n.rstd.shape());
    bench.ops->rmsnorm({n.sum, {}, n.weight, y, {}, rstd, kEps}, bench.stream());
    EXPECT_TRUE(same_bits(y, n.y)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(rstd, n.rstd)) << label(GetParam(), dtype);
  }
}

TEST_P(RmsNorm, TheSumMayLieOverXOrTheResidual) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    Norm apart(bench, dtype, 3, 19, true);
    bench.ops->rmsnorm(apart.args(), bench.stream());
    for (bool over_x : {true, false}) {
      Norm n(bench, dtype, 3, 19, true);
      n.sum = over_x ? n.x : n.residual;
      bench.ops->rmsnorm(n.args(), bench.stream());
      EXPECT_TRUE(same_bits(n.sum, apart.sum)) << label(GetParam(), dtype);
      EXPECT_TRUE(same_bits(n.y, apart.y)) << label(GetParam(), dtype);
    }
  }
}

TEST_P(RmsNorm, GradientsMatchFiniteDifferences) {
  Bench bench(GetParam());
  const int64_t shapes[][2] = {{3, 5}, {1, 17}, {4, 1}, {1, 1}};
  for (const auto& shape : shapes) {
    const int64_t rows = shape[0], width = shape[1];
    Norm n(bench, DType::f64, rows, width, false);
    bench.ops->rmsnorm(n.args(), bench.stream());
    const Tensor dy = random_tensor(bench, DType::f64, {rows, width}, 4);
    const Tensor dx = bench.empty(DType::f64, {rows, width});
    const Tensor dweight =
        tensor(bench, DType::f64, {width}, std::vector<double>(static_cast<size_t>(width), 0));
    bench.ops->rmsnorm_backward({dy, n.x, n.weight, n.rstd, {}, dx, dweight, {}}, bench.stream());
    const std::vector<double> x = values(n.x), weight = values(n.weight), g = values(dy);
    // Beside the largest gradient of weight: for a width of 1, dx is a small difference of large numbers.
    expect_close(dx, numeric_gradient(x, [&](auto& moved) { return dot(reference(moved, {}, weight).y, g); }),
                 1e-7, "dx " + n.x.shape().text());
    expect_close(dweight,
                 numeric_gradient(weight, [&](auto& moved) { return dot(reference(x, {}, moved).y, g); }),
                 1e-7, "dweight " + n.x.shape().text());
  }
}

// dx is the gradient of x and of the residual; the sum, which is an output too, adds its own.
TEST_P(RmsNorm, GradientsWithAResidualMatchFiniteDifferences) {
  Bench bench(GetParam());
  const int64_t shapes[][2] = {{3, 5}, {1, 17}, {5, 33}, {4, 1}, {1, 1}};
  for (const auto& shape : shapes) {
    const int64_t width = shape[1];
    Norm n(bench, DType::f64, shape[0], width, true);
    bench.ops->rmsnorm(n.args(), bench.stream());
    const Tensor dy = random_tensor(bench, DType::f64, n.x.shape(), 4),
                 dsum = random_tensor(bench, DType::f64, n.x.shape(), 5);
    const Tensor dx = bench.empty(DType::f64, n.x.shape());
    const Tensor dweight =
        tensor(bench, DType::f64, {width}, std::vector<double>(static_cast<size_t>(width), 0));
    bench.ops->rmsnorm_backward({dy, n.sum, n.weight, n.rstd, dsum, dx, dweight, {}}, bench.stream());
    const std::vector<double> x = values(n.x), residual = values(n.residual), weight = values(n.weight);
    const std::vector<double> g = values(dy), g_sum = values(dsum);
    const auto objective = [&](const auto& x_at, const auto& residual_at, const auto& weight_at) {
      const Reference at = reference(x_at, residual_at, weight_at);
      return dot(at.y, g) + dot(at.sum, g_sum);
    };
    const std::string what = n.x.shape().text();
    expect_close(dx, numeric_gradient(x, [&](auto& moved) { return objective(moved, residual, weight); }),
                 1e-7, "dx " + what);
    expect_close(dx, numeric_gradient(residual, [&](auto& moved) { return objective(x, moved, weight); }),
                 1e-7, "dresidual " + what);
    expect_close(dweight,
                 numeric_gradient(weight, [&](auto& moved) { return objective(x, residual, moved); }), 1e-7,
                 "dweight " + what);
  }
}

struct Gradients {
  Tensor dx, dweight;
};

Gradients backward(Bench& bench, const Norm& n, const Tensor& dy, const Tensor& dsum) {
  const int64_t width = n.x.dim(1);
  Gradients g{bench.empty(n.x.dtype(), n.x.shape()), bench.empty(n.rstd.dtype(), {width})};
  assign(g.dweight, std::vector<double>(static_cast<size_t>(width), 0.5));
  bench.ops->rmsnorm_backward({dy, n.stored(), n.weight, n.rstd, dsum, g.dx, g.dweight, {}}, bench.stream());
  return g;
}

// The f64 gradients over the same rounded inputs; dweight starts from 0.5, so it is added to.
TEST_P(RmsNorm, BackwardMatchesF64OnAnyNumberOfThreads) {
  Bench exact(cpu::Isa::portable);
  for (DType dtype : kFloats)
    for (int64_t rows : {0, 1, 7, 131})
      for (int64_t width : {1, 513})
        for (int threads : {1, 2, 3}) {
          if (threads > 1 && rows * width < 60000) continue;
          Bench bench(GetParam(), threads);
          Norm n(bench, dtype, rows, width, true);
          bench.ops->rmsnorm(n.args(), bench.stream());
          const Tensor dy = random_tensor(bench, dtype, n.x.shape(), 4),
                       dsum = random_tensor(bench, dtype, n.x.shape(), 5);
          const Gradients got = backward(bench, n, dy, dsum);

          Norm n64(exact, DType::f64, rows, width, false);
          assign(n64.x, values(n.sum));
          assign(n64.weight, values(n.weight));
          exact.ops->rmsnorm(n64.args(), exact.stream());
          const Gradients want = backward(exact, n64, tensor(exact, DType::f64, n.x.shape(), values(dy)),
                                          tensor(exact, DType::f64, n.x.shape(), values(dsum)));
          const std::string what =
              label(GetParam(), dtype) + " " + n.x.shape().text() + " threads " + std::to_string(threads);
          expect_close(got.dx, values(want.dx), tolerance_of(dtype), "dx " + what);
          expect_close(got.dweight, values(want.dweight), dtype == DType::f64 ? 1e-12 : 2e-5,
                       "dweight " + what);

          const Gradients again = backward(bench, n, dy, dsum);
          EXPECT_TRUE(same_bits(again.dx, got.dx)) << what;
          EXPECT_TRUE(same_bits(again.dweight, got.dweight)) << what;
          const Tensor y = bench.empty(dtype, n.x.shape());
          bench.ops->rmsnorm_backward({dy, n.sum, n.weight, n.rstd, dsum, got.dx, {}, y}, bench.stream());
          EXPECT_TRUE(same_bits(again.dx, got.dx)) << what << " with y";
          EXPECT_TRUE(same_bits(y, n.y)) << what;
          bench.ops->rmsnorm_backward({dy, n.sum, n.weight, n.rstd, dsum, dsum, {}, dy}, bench.stream());
          EXPECT_TRUE(same_bits(dsum, got.dx)) << what << " in place";
          EXPECT_TRUE(same_bits(dy, n.y)) << what << " in place";
        }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RmsNorm, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
