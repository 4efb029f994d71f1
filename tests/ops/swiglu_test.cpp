#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

std::vector<double> reference(const std::vector<double>& gate, const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return y;
}

// gate and up as the two halves of one tensor, as a fused projection gives them.
struct Halves {
  Halves(Bench& bench, DType dtype, int64_t rows, int64_t width, uint32_t seed)
      : both(random_tensor(bench, dtype, {rows, 2 * width}, seed, 3)),
        gate(both.slice(1, 0, width)),
        up(both.slice(1, width, 2 * width)) {}
  Tensor both, gate, up;
};

class Swiglu : public EachIsa {};

TEST_P(Swiglu, ForwardMatchesTheFormula) {
  for (int threads : {1, 2, 3})
    for (DType dtype : kFloats)
      for (int64_t rows : {0, 1, 5, 97})
        for (int64_t width : {1, 9, 301}) {
          Bench bench(GetParam(), threads);
          const Halves x(bench, dtype, rows, width, 1);
          const Tensor y = bench.empty(dtype, {rows, width});
          bench.ops->swiglu({x.gate, x.up, y}, bench.stream());
          expect_close(y, reference(values(x.gate), values(x.up)), tolerance_of(dtype),
                       label(GetParam(), dtype) + " " + y.shape().text());
        }
}

TEST_P(Swiglu, LargeGatesSaturate) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    const std::vector<double> gates = {-1e4, -100, -88, 0, 88, 100, 1e4};
    const Tensor gate = tensor(bench, dtype, {1, 7}, gates),
                 up = tensor(bench, dtype, {1, 7}, {1, 1, 1, 1, 1, 1, 1});
    const Tensor y = bench.empty(dtype, {1, 7});
    bench.ops->swiglu({gate, up, y}, bench.stream());
    for (int64_t i = 0; i < 7; ++i) {
      const double want = gates[static_cast<size_t>(i)] > 0 ? element(gate, i) : 0;
      EXPECT_NEAR(element(y, i), want, 1e-30 + (dtype == DType::f64 ? 1e-36 : 0))
          << label(GetParam(), dtype) << i;
    }
  }
}

TEST_P(Swiglu, GradientsMatchFiniteDifferences) {
  Bench bench(GetParam());
  const int64_t shapes[][2] = {{1, 1}, {3, 7}, {1, 19}, {5, 1}};
  for (const auto& shape : shapes) {
    const Halves x(bench, DType::f64, shape[0], shape[1], 1), d(bench, DType::f64, shape[0], shape[1], 2);
    const Tensor dy = random_tensor(bench, DType::f64, {shape[0], shape[1]}, 3);
    const std::vector<double> gate = values(x.gate), up = values(x.up), g = values(dy);
    bench.ops->swiglu_backward({x.gate, x.up, dy, d.gate, d.up, {}}, bench.stream());
    expect_close(d.gate, numeric_gradient(gate, [&](auto& moved) { return dot(reference(moved, up), g); }),
                 1e-7, "dgate " + dy.shape().text());
    expect_close(d.up, numeric_gradient(up, [&](auto& moved) { return dot(reference(gate, moved), g); }),
                 1e-7, "dup " + dy.shape().text());
  }
}

TEST_P(Swiglu, BackwardMatchesF64AndWritesYAgain) {
  for (int threads : {1, 2, 3})
    for (DType dtype : kFloats)
      for (int64_t width : {1, 41, 512}) {
        Bench bench(GetParam(), threads);
        const int64_t rows = 53;
        const Halves x(bench, dtype, rows, width, 1), d(bench, dtype, rows, width, 2);
        const Tensor dy = random_tensor(bench, dtype, {rows, width}, 3);
        const Tensor y = bench.empty(dtype, dy.shape()), again = bench.empty(dtype, dy.shape());
        bench.ops->swiglu({x.gate, x.up, y}, bench.stream());

        const Shape shape = dy.shape();
        const Tensor gate64 = tensor(bench, DType::f64, shape, values(x.gate)),
                     up64 = tensor(bench, DType::f64, shape, values(x.up)),
                     dy64 = tensor(bench, DType::f64, shape, values(dy)),
                     dgate64 = bench.empty(DType::f64, shape), dup64 = bench.empty(DType::f64, shape);
        bench.ops->swiglu_backward({gate64, up64, dy64, dgate64, dup64, {}}, bench.stream());

        const std::string what =
            label(GetParam(), dtype) + " " + shape.text() + " threads " + std::to_string(threads);
        bench.ops->swiglu_backward({x.gate, x.up, dy, d.gate, d.up, again}, bench.stream());
        expect_close(d.gate, values(dgate64), tolerance_of(dtype), "dgate " + what);
        expect_close(d.up, values(dup64), tolerance_of(dtype), "dup " + what);
        EXPECT_TRUE(same_bits(again, y)) << what;
        bench.ops->swiglu_backward({x.gate, x.up, dy, x.gate, x.up, dy}, bench.stream());
        EXPECT_TRUE(same_bits(x.both, d.both)) << what << " in place";
        EXPECT_TRUE(same_bits(dy, y)) << what << " in place";
      }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Swiglu, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
