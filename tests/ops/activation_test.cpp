// The activations by themselves and as the gate of a product (SwiGLU and its kind).
#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

using Values = std::vector<double>;

constexpr Activation kAll[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu,
                               Activation::tanh};
const char* const kNames[] = {"silu", "gelu_tanh", "gelu", "relu", "tanh"};

const char* name_of(Activation a) { return kNames[static_cast<int>(a)]; }

double activated(Activation a, double x) {
  switch (a) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu: return std::max(x, 0.0);
    case Activation::tanh: return std::tanh(x);
  }
  return NAN;
}

Values reference(Activation a, const Values& x) {
  Values y;
  for (const double e : x) y.push_back(activated(a, e));
  return y;
}

Values gated(Activation a, const Values& gate, const Values& up) {
  Values y = reference(a, gate);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= up[i];
  return y;
}

class ActivationKernel : public EachIsa {};

TEST_P(ActivationKernel, ForwardMatchesTheFormula) {
  for (int threads : {1, 3})
    for (DType dtype : kFloats)
      for (Activation a : kAll)
        for (const Shape& shape : {Shape{0, 3}, Shape{1, 1}, Shape{5, 9}, Shape{97, 301}}) {
          Bench bench(GetParam(), threads);
          const Tensor x = random_tensor(bench, dtype, shape, 1, 3), y = bench.empty(dtype, shape);
          bench.ops->activation({x, y, a}, bench.stream());
          const std::string what = label(GetParam(), dtype) + " " + name_of(a) + " " + shape.text();
          expect_close(y, reference(a, values(x)), tolerance_of(dtype), what);
          bench.ops->activation({x, x, a}, bench.stream());
          EXPECT_TRUE(same_bits(x, y)) << what << " in place";
        }
}

TEST_P(ActivationKernel, LargeInputsSaturate) {
  Bench bench(GetParam());
  const Values inputs = {-1e4, -100, -30, 0, 30, 100, 1e4};
  for (DType dtype : kFloats)
    for (Activation a : kAll) {
      const Tensor x = tensor(bench, dtype, {1, 7}, inputs), dy = tensor(bench, dtype, {1, 7}, Values(7, 1)),
                   y = bench.empty(dtype, {1, 7}), dx = bench.empty(dtype, {1, 7});
      bench.ops->activation({x, y, a}, bench.stream());
      bench.ops->activation_backward({x, dy, dx, {}, a}, bench.stream());
      for (int64_t i = 0; i < 7; ++i) {
        if (i == 3) continue;
        const bool on = inputs[static_cast<size_t>(i)] > 0, tanh = a == Activation::tanh;
        const double value = tanh ? (on ? 1 : -1) : (on ? element(x, i) : 0);
        EXPECT_NEAR(element(y, i), value, 1e-10) << label(GetParam(), dtype) << name_of(a) << i;
        EXPECT_NEAR(element(dx, i), on && !tanh ? 1 : 0, 1e-10)
            << label(GetParam(), dtype) << name_of(a) << i;
      }
    }
}

TEST_P(ActivationKernel, NotANumberStays) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (Activation a : kAll) {
      const Tensor x = tensor(bench, dtype, {1, 2}, {NAN, 1}), y = bench.empty(dtype, {1, 2});
      bench.ops->activation({x, y, a}, bench.stream());
      EXPECT_TRUE(std::isnan(element(y, 0))) << label(GetParam(), dtype) << name_of(a);
      EXPECT_FALSE(std::isnan(element(y, 1))) << label(GetParam(), dtype) << name_of(a);
    }
}

TEST_P(ActivationKernel, GradientsMatchFiniteDifferences) {
  Bench bench(GetParam());
  for (Activation a : kAll)
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{1, 19}}) {
      const Tensor x = random_tensor(bench, DType::f64, shape, 1, 2),
                   up = random_tensor(bench, DType::f64, shape, 2),
                   dy = random_tensor(bench, DType::f64, shape, 3);
      const Tensor dx = bench.empty(DType::f64, shape), dgate = bench.empty(DType::f64, shape),
                   dup = bench.empty(DType::f64, shape);
      const Values at = values(x), up_at = values(up), g = values(dy);
      bench.ops->activation_backward({x, dy, dx, {}, a}, bench.stream());
      bench.ops->swiglu_backward({x, up, dy, dgate, dup, {}, a}, bench.stream());
      const std::string what = std::string(name_of(a)) + shape.text();
      expect_close(dx, numeric_gradient(at, [&](auto& moved) { return dot(reference(a, moved), g); }), 1e-7,
                   "dx " + what);
      expect_close(dgate, numeric_gradient(at, [&](auto& moved) { return dot(gated(a, moved, up_at), g); }),
                   1e-7, "dgate " + what);
      expect_close(dup, numeric_gradient(up_at, [&](auto& moved) { return dot(gated(a, at, moved), g); }),
                   1e-7, "dup " + what);
    }
}

TEST_P(ActivationKernel, BackwardMatchesF64AndWritesYAgain) {
  for (int threads : {1, 3})
    for (DType dtype : kFloats)
      for (Activation a : kAll) {
        Bench bench(GetParam(), threads);
        const Shape shape{53, 301};
        const Tensor x = random_tensor(bench, dtype, shape, 1, 3), dy = random_tensor(bench, dtype, shape, 3);
        const Tensor y = bench.empty(dtype, shape), again = bench.empty(dtype, shape),
                     dx = bench.empty(dtype, shape);
        bench.ops->activation({x, y, a}, bench.stream());
        const Tensor x64 = tensor(bench, DType::f64, shape, values(x)),
                     dy64 = tensor(bench, DType::f64, shape, values(dy)),
                     dx64 = bench.empty(DType::f64, shape);
        bench.ops->activation_backward({x64, dy64, dx64, {}, a}, bench.stream());
        const std::string what =
            label(GetParam(), dtype) + " " + name_of(a) + " threads " + std::to_string(threads);
        bench.ops->activation_backward({x, dy, dx, again, a}, bench.stream());
        expect_close(dx, values(dx64), tolerance_of(dtype), "dx " + what);
        EXPECT_TRUE(same_bits(again, y)) << what;
        bench.ops->activation_backward({x, dy, x, dy, a}, bench.stream());
        EXPECT_TRUE(same_bits(x, dx)) << what << " in place";
        EXPECT_TRUE(same_bits(dy, y)) << what << " in place";
      }
}

TEST_P(ActivationKernel, AGateMultipliesAndIsComputedAgainWithTheSameBits) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (Activation a : kAll) {
      const Shape shape{7, 41};
      const Tensor gate = random_tensor(bench, dtype, shape, 1, 3),
                   up = random_tensor(bench, dtype, shape, 2), dy = random_tensor(bench, dtype, shape, 3);
      const Tensor y = bench.empty(dtype, shape), dgate = bench.empty(dtype, shape),
                   dup = bench.empty(dtype, shape);
      bench.ops->swiglu({gate, up, y, a}, bench.stream());
      const std::string what = label(GetParam(), dtype) + " " + name_of(a);
      expect_close(y, gated(a, values(gate), values(up)), tolerance_of(dtype), what);
      bench.ops->swiglu_backward({gate, up, dy, dgate, dup, dy, a}, bench.stream());
      EXPECT_TRUE(same_bits(dy, y)) << what;
    }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ActivationKernel, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
