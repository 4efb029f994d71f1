#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

using Values = std::vector<double>;

constexpr double kEps = 1e-5;

struct Reference {
  Values sum, y, mean, rstd;
};

Reference reference(const Values& x, const Values& residual, const Values& weight, const Values& bias) {
  const size_t width = weight.size(), rows = x.size() / width;
  Reference r{x, Values(x.size()), Values(rows), Values(rows)};
  for (size_t i = 0; i < residual.size(); ++i) r.sum[i] += residual[i];
  for (size_t t = 0; t < rows; ++t) {
    const double* s = r.sum.data() + t * width;
    double variance = 0;
    for (size_t d = 0; d < width; ++d) r.mean[t] += s[d] / static_cast<double>(width);
    for (size_t d = 0; d < width; ++d)
      variance += (s[d] - r.mean[t]) * (s[d] - r.mean[t]) / static_cast<double>(width);
    r.rstd[t] = 1 / std::sqrt(variance + kEps);
    for (size_t d = 0; d < width; ++d)
      r.y[t * width + d] = (s[d] - r.mean[t]) * r.rstd[t] * weight[d] + bias[d];
  }
  return r;
}

struct Norm {
  Norm(Bench& bench, DType dtype, int64_t rows, int64_t width, bool with_residual, double shift = 0)
      : x(random_tensor(bench, dtype, {rows, width}, 1)),
        weight(random_tensor(bench, dtype, {width}, 2)),
        bias(random_tensor(bench, dtype, {width}, 3)),
        y(bench.empty(dtype, {rows, width})),
        mean(bench.empty(accumulator_of(dtype), {rows})),
        rstd(bench.empty(accumulator_of(dtype), {rows})) {
    Values moved = values(x);
    for (double& e : moved) e += shift;
    assign(x, moved);
    if (!with_residual) return;
    residual = random_tensor(bench, dtype, {rows, width}, 4);
    sum = bench.empty(dtype, {rows, width});
  }
  LayerNormArgs args() const { return {x, residual, weight, bias, y, sum, mean, rstd, kEps}; }
  Tensor stored() const { return residual ? sum : x; }

  Tensor x, weight, bias, y, mean, rstd, residual, sum;
};

class LayerNorm : public EachIsa {};

TEST_P(LayerNorm, ForwardMatchesTheFormula) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (int64_t rows : {0, 1, 5})
      for (int64_t width : {1, 7, 33, 512})
        for (bool with_residual : {false, true}) {
          Norm n(bench, dtype, rows, width, with_residual);
          bench.ops->layernorm(n.args(), bench.stream());
          const std::string what = label(GetParam(), dtype) + " " + n.x.shape().text();
          if (with_residual) {
            Values sum = values(n.x);
            const Values residual = values(n.residual);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += residual[i];
            expect_close(n.sum, sum, tolerance_of(dtype), "sum " + what);
          }
          const Reference want = reference(values(n.stored()), {}, values(n.weight), values(n.bias));
          expect_close(n.y, want.y, tolerance_of(dtype), "y " + what);
          expect_close(values(n.mean), want.mean, dtype == DType::f64 ? 1e-13 : 1e-6, "mean " + what, 1);
          expect_close(n.rstd, want.rstd, dtype == DType::f64 ? 1e-12 : 1e-5, "rstd " + what);
        }
}

// The variance is computed from differences to the mean: mean(x^2) - mean(x)^2 would lose it to rounding.
TEST_P(LayerNorm, ALargeMeanDoesNotHideTheVariance) {
  Bench bench(GetParam());
  for (DType dtype : {DType::f64, DType::f32}) {
    Norm n(bench, dtype, 3, 77, false, 1000);
    bench.ops->layernorm(n.args(), bench.stream());
    const Reference want = reference(values(n.x), {}, values(n.weight), values(n.bias));
    expect_close(n.rstd, want.rstd, dtype == DType::f64 ? 1e-10 : 1e-4, label(GetParam(), dtype));
    expect_close(n.y, want.y, dtype == DType::f64 ? 1e-10 : 1e-3, label(GetParam(), dtype));
  }
}

TEST_P(LayerNorm, TheSumMayLieOverXOrTheResidualAndAPassOverItHasTheSameBits) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    Norm apart(bench, dtype, 3, 19, true);
    bench.ops->layernorm(apart.args(), bench.stream());
    for (bool over_x : {true, false}) {
      Norm n(bench, dtype, 3, 19, true);
      n.sum = over_x ? n.x : n.residual;
      bench.ops->layernorm(n.args(), bench.stream());
      EXPECT_TRUE(same_bits(n.sum, apart.sum)) << label(GetParam(), dtype);
      EXPECT_TRUE(same_bits(n.y, apart.y)) << label(GetParam(), dtype);
    }
    const Tensor y = bench.empty(dtype, apart.y.shape());
    bench.ops->layernorm({apart.sum, {}, apart.weight, apart.bias, y, {}, apart.mean, apart.rstd, kEps},
                         bench.stream());
    EXPECT_TRUE(same_bits(y, apart.y)) << label(GetParam(), dtype);
  }
}

TEST_P(LayerNorm, GradientsMatchFiniteDifferences) {
  Bench bench(GetParam());
  const int64_t shapes[][2] = {{3, 5}, {1, 17}, {5, 33}, {4, 1}, {1, 1}};
  for (const auto& shape : shapes) {
    const int64_t width = shape[1];
    Norm n(bench, DType::f64, shape[0], width, true);
    bench.ops->layernorm(n.args(), bench.stream());
    const Tensor dy = random_tensor(bench, DType::f64, n.x.shape(), 5),
                 dsum = random_tensor(bench, DType::f64, n.x.shape(), 6);
    const Tensor dx = bench.empty(DType::f64, n.x.shape());
    const Values zeros(static_cast<size_t>(width), 0);
    const Tensor dweight = tensor(bench, DType::f64, {width}, zeros),
                 dbias = tensor(bench, DType::f64, {width}, zeros);
    bench.ops->layernorm_backward({dy, n.sum, n.weight, n.bias, n.mean, n.rstd, dsum, dx, dweight, dbias, {}},
                                  bench.stream());
    const Values x = values(n.x), residual = values(n.residual), weight = values(n.weight),
                 bias = values(n.bias);
    const Values g = values(dy), g_sum = values(dsum);
    const auto objective = [&](const auto& x_at, const auto& weight_at, const auto& bias_at) {
      const Reference at = reference(x_at, residual, weight_at, bias_at);
      return dot(at.y, g) + dot(at.sum, g_sum);
    };
    const std::string what = n.x.shape().text();
    const auto close = [&](const Tensor& got, const Values& want, const char* name) {
      expect_close(values(got), want, 1e-6, name + what, 1e-3);
    };
    close(dx, numeric_gradient(x, [&](auto& moved) { return objective(moved, weight, bias); }), "dx ");
    close(dweight, numeric_gradient(weight, [&](auto& moved) { return objective(x, moved, bias); }),
          "dweight ");
    close(dbias, numeric_gradient(bias, [&](auto& moved) { return objective(x, weight, moved); }), "dbias ");
  }
}

struct Gradients {
  Tensor dx, dweight, dbias;
};

Gradients backward(Bench& bench, const Norm& n, const Tensor& dy, const Tensor& dsum) {
  const int64_t width = n.x.dim(1);
  const Values start(static_cast<size_t>(width), 0.5);
  Gradients g{bench.empty(n.x.dtype(), n.x.shape()), tensor(bench, n.rstd.dtype(), {width}, start),
              tensor(bench, n.rstd.dtype(), {width}, start)};
  bench.ops->layernorm_backward(
      {dy, n.stored(), n.weight, {}, n.mean, n.rstd, dsum, g.dx, g.dweight, g.dbias, {}}, bench.stream());
  return g;
}

// The f64 gradients over the same rounded inputs; dweight and dbias start from 0.5, so they are added to.
TEST_P(LayerNorm, BackwardMatchesF64OnAnyNumberOfThreads) {
  Bench exact(cpu::Isa::portable);
  for (DType dtype : kFloats)
    for (int64_t rows : {0, 1, 7, 131})
      for (int64_t width : {1, 513})
        for (int threads : {1, 2, 3}) {
          if (threads > 1 && rows * width < 60000) continue;
          Bench bench(GetParam(), threads);
          Norm n(bench, dtype, rows, width, true);
          bench.ops->layernorm(n.args(), bench.stream());
          const Tensor dy = random_tensor(bench, dtype, n.x.shape(), 5),
                       dsum = random_tensor(bench, dtype, n.x.shape(), 6);
          const Gradients got = backward(bench, n, dy, dsum);

          Norm n64(exact, DType::f64, rows, width, false);
          assign(n64.x, values(n.sum));
          assign(n64.weight, values(n.weight));
          assign(n64.bias, values(n.bias));
          exact.ops->layernorm(n64.args(), exact.stream());
          const Gradients want = backward(exact, n64, tensor(exact, DType::f64, n.x.shape(), values(dy)),
                                          tensor(exact, DType::f64, n.x.shape(), values(dsum)));
          const std::string what =
              label(GetParam(), dtype) + " " + n.x.shape().text() + " threads " + std::to_string(threads);
          // With one column x - mean is 0, and rstd is large: what is left is rounding.
          const double floor = width == 1 ? 100 : 1e-30;
          expect_close(values(got.dx), values(want.dx), tolerance_of(dtype), "dx " + what, floor);
          expect_close(got.dweight, values(want.dweight), dtype == DType::f64 ? 1e-12 : 2e-5,
                       "dweight " + what);
          expect_close(got.dbias, values(want.dbias), dtype == DType::f64 ? 1e-12 : 2e-5, "dbias " + what);

          const Gradients again = backward(bench, n, dy, dsum);
          EXPECT_TRUE(same_bits(again.dx, got.dx)) << what;
          EXPECT_TRUE(same_bits(again.dweight, got.dweight)) << what;
          EXPECT_TRUE(same_bits(again.dbias, got.dbias)) << what;
          bench.ops->layernorm_backward({dy, n.sum, n.weight, n.bias, n.mean, n.rstd, dsum, dsum, {}, {}, dy},
                                        bench.stream());
          EXPECT_TRUE(same_bits(dsum, got.dx)) << what << " in place";
          EXPECT_TRUE(same_bits(dy, n.y)) << what << " in place";
        }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LayerNorm, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
