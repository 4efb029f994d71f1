// Norms, activations, dropout and rotary angles of a part of a head on the software GPU, against plain loops
// in f64.
#include "base/error_of.h"
#include "base/philox.h"
#include "gpu_emulation/cuda_ops_testing.h"
#include "gpu_emulation/emulator.h"

namespace gangway {
namespace {

using namespace ops_testing;
using Values = std::vector<double>;

size_t at(int64_t i) { return static_cast<size_t>(i); }
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-12 : 2 * rounding_of(dtype) + 2e-5; }

class ModelOps : public OnSoftwareGpu {};

struct Sizes {
  int64_t rows, width;
};
constexpr Sizes kSizes[] = {{1, 1}, {3, 7}, {5, 64}, {2, 1000}};

// With y = x * rstd * (1 + weight), g the gradient of y: dx, dweight and the recomputed y.
TEST_F(ModelOps, RmsNormTakesAnOffset) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const auto& [T, D] : kSizes) {
      const DType wide = accumulator_of(dtype);
      const Tensor x = random_tensor(bench, dtype, {T, D}, 1), w = random_tensor(bench, dtype, {D}, 2, 0.3),
                   dy = random_tensor(bench, dtype, {T, D}, 3), y = bench.empty(dtype, {T, D}),
                   again = bench.empty(dtype, {T, D}), dx = bench.empty(dtype, {T, D}),
                   rstd = bench.empty(wide, {T}), dw = tensor(bench, wide, {D}, Values(at(D), 3));
      RmsNormArgs forward{.x = x, .residual = {}, .weight = w, .y = y, .sum = {}, .rstd = rstd};
      forward.offset = 1;
      bench.ops->rmsnorm(forward, bench.stream());
      RmsNormBackwardArgs backward{
          .dy = dy, .x = x, .weight = w, .rstd = rstd, .dsum = {}, .dx = dx, .dweight = dw, .y = {}};
      backward.y = again;
      backward.offset = 1;
      bench.ops->rmsnorm_backward(backward, bench.stream());
      const Values X = values(x), W = values(w), G = values(dy);
      Values want_y, want_dx, want_dw(at(D), 3);
      for (int64_t t = 0; t < T; ++t) {
        double squares = 0, along = 0;
        for (int64_t d = 0; d < D; ++d) squares += X[at(t * D + d)] * X[at(t * D + d)];
        const double r = 1 / std::sqrt(squares / static_cast<double>(D) + 1e-6);
        for (int64_t d = 0; d < D; ++d) along += G[at(t * D + d)] * (1 + W[at(d)]) * X[at(t * D + d)] * r;
        for (int64_t d = 0; d < D; ++d) {
          const double normed = X[at(t * D + d)] * r;
          want_y.push_back(normed * (1 + W[at(d)]));
          want_dx.push_back(r *
                            (G[at(t * D + d)] * (1 + W[at(d)]) - normed * along / static_cast<double>(D)));
          want_dw[at(d)] += G[at(t * D + d)] * normed;
        }
      }
      expect_close(y, want_y, tolerance(dtype), "y");
      EXPECT_TRUE(same_bits(again, y));
      expect_close(values(dx), want_dx, tolerance(dtype), "dx", 0.1);
      expect_close(dw, want_dw, tolerance(wide), "dweight");
    }
}

// Two parts of each row, whose squares and dots are added: the whole row's results.
TEST_F(ModelOps, RmsNormOfPartsIsThatOfTheWholeRow) {
  Bench bench;
  const int64_t T = 4, D = 24, cut = 9;
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto part_of = [&](const Tensor& t, int64_t first, int64_t last) {
      const int dim = t.rank() - 1;
      const Tensor view = t.slice(dim, first, last);
      return tensor(bench, dtype, view.shape(), values(view));
    };
    const Tensor x = random_tensor(bench, dtype, {T, D}, 1), w = random_tensor(bench, dtype, {D}, 2),
                 dy = random_tensor(bench, dtype, {T, D}, 3), y = bench.empty(dtype, {T, D}),
                 dx = bench.empty(dtype, {T, D}), rstd = bench.empty(dtype, {T});
    bench.ops->rmsnorm({.x = x, .residual = {}, .weight = w, .y = y, .sum = {}, .rstd = rstd},
                       bench.stream());
    bench.ops->rmsnorm_backward(
        {.dy = dy, .x = x, .weight = w, .rstd = rstd, .dsum = {}, .dx = dx, .dweight = {}, .y = {}},
        bench.stream());
    const Tensor squares = bench.empty(dtype, {T}), dots = bench.empty(dtype, {T}),
                 other = bench.empty(dtype, {T});
    const auto both = [&](const Tensor& of, const Tensor& a, const Tensor& b, const Tensor& weight) {
      bench.ops->row_dot(
          {part_of(a, 0, cut), part_of(b, 0, cut), weight ? part_of(weight, 0, cut) : Tensor(), of},
          bench.stream());
      bench.ops->row_dot(
          {part_of(a, cut, D), part_of(b, cut, D), weight ? part_of(weight, cut, D) : Tensor(), other},
          bench.stream());
      bench.ops->add(other, 1, of, bench.stream());
    };
    both(squares, x, x, {});
    both(dots, x, dy, w);
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, D}}) {
      const Tensor own_x = part_of(x, first, last), own_w = part_of(w, first, last),
                   own_y = bench.empty(dtype, own_x.shape()), own_dx = bench.empty(dtype, own_x.shape()),
                   own_rstd = bench.empty(dtype, {T});
      RmsNormArgs forward{
          .x = own_x, .residual = {}, .weight = own_w, .y = own_y, .sum = {}, .rstd = own_rstd};
      forward.squares = squares;
      forward.width = D;
      bench.ops->rmsnorm(forward, bench.stream());
      RmsNormBackwardArgs backward{.dy = part_of(dy, first, last),
                                   .x = own_x,
                                   .weight = own_w,
                                   .rstd = own_rstd,
                                   .dsum = {},
                                   .dx = own_dx,
                                   .dweight = {},
                                   .y = {}};
      backward.dots = dots;
      backward.width = D;
      bench.ops->rmsnorm_backward(backward, bench.stream());
      expect_close(own_y, values(y.slice(1, first, last)), tolerance(dtype), "y");
      expect_close(own_dx, values(dx.slice(1, first, last)), tolerance(dtype), "dx");
    }
  }
}

TEST_F(ModelOps, RowDotMultipliesByTheOffsetWeight) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const auto& [T, D] : kSizes) {
      const Tensor x = random_tensor(bench, dtype, {T, D}, 1), y = random_tensor(bench, dtype, {T, D}, 2),
                   w = random_tensor(bench, dtype, {D}, 3), out = bench.empty(accumulator_of(dtype), {T});
      bench.ops->row_dot({x, y, w, out, 1}, bench.stream());
      const Values X = values(x), Y = values(y), W = values(w);
      Values want(at(T), 0);
      for (int64_t i = 0; i < T * D; ++i) want[at(i / D)] += X[at(i)] * Y[at(i)] * (1 + W[at(i % D)]);
      expect_close(values(out), want, dtype == DType::f64 ? 1e-12 : 1e-5, "row_dot", 1);
    }
}

TEST_F(ModelOps, LayerNormAndItsGradientsAreTheFormulas) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const auto& [T, D] : kSizes) {
      const DType wide = accumulator_of(dtype);
      const Tensor x = random_tensor(bench, dtype, {T, D}, 1),
                   residual = random_tensor(bench, dtype, {T, D}, 2), w = random_tensor(bench, dtype, {D}, 3),
                   bias = random_tensor(bench, dtype, {D}, 4), dy = random_tensor(bench, dtype, {T, D}, 5),
                   dsum = random_tensor(bench, dtype, {T, D}, 6), y = bench.empty(dtype, {T, D}),
                   sum = bench.empty(dtype, {T, D}), again = bench.empty(dtype, {T, D}),
                   dx = bench.empty(dtype, {T, D}), mean = bench.empty(wide, {T}),
                   rstd = bench.empty(wide, {T}), dw = tensor(bench, wide, {D}, Values(at(D), 3)),
                   db = tensor(bench, wide, {D}, Values(at(D), 2));
      bench.ops->layernorm({x, residual, w, bias, y, sum, mean, rstd}, bench.stream());
      bench.ops->layernorm_backward({dy, sum, w, bias, mean, rstd, dsum, dx, dw, db, again}, bench.stream());
      const Values S = values(sum), W = values(w), B = values(bias), G = values(dy), R = values(dsum);
      const Values X = values(x), added = values(residual);
      Values want_sum, want_y, want_dx, want_dw(at(D), 3), want_db(at(D), 2);
      for (size_t i = 0; i < X.size(); ++i) want_sum.push_back(rounded(dtype, X[i] + added[i]));
      const auto n = static_cast<double>(D);
      for (int64_t t = 0; t < T; ++t) {
        double m = 0, variance = 0, total = 0, along = 0;
        for (int64_t d = 0; d < D; ++d) m += S[at(t * D + d)] / n;
        for (int64_t d = 0; d < D; ++d) variance += (S[at(t * D + d)] - m) * (S[at(t * D + d)] - m) / n;
        const double r = 1 / std::sqrt(variance + 1e-5);
        for (int64_t d = 0; d < D; ++d) {
          total += G[at(t * D + d)] * W[at(d)] / n;
          along += G[at(t * D + d)] * W[at(d)] * (S[at(t * D + d)] - m) * r / n;
        }
        for (int64_t d = 0; d < D; ++d) {
          const double normed = (S[at(t * D + d)] - m) * r;
          want_y.push_back(normed * W[at(d)] + B[at(d)]);
          want_dx.push_back(r * (G[at(t * D + d)] * W[at(d)] - total - normed * along) + R[at(t * D + d)]);
          want_dw[at(d)] += G[at(t * D + d)] * normed;
          want_db[at(d)] += G[at(t * D + d)];
        }
      }
      EXPECT_EQ(S, want_sum);
      expect_close(values(y), want_y, tolerance(dtype), "y", 1);
      EXPECT_TRUE(same_bits(again, y));
      // One element alone has variance 0, so that rounding of the gradient is multiplied by 1 / sqrt(eps).
      if (D > 1) expect_close(values(dx), want_dx, tolerance(dtype), "dx", 1);
      expect_close(dw, want_dw, tolerance(wide), "dweight");
      expect_close(db, want_db, tolerance(wide), "dbias");
    }
}

double activated(Activation a, double x) {
  switch (a) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu: return std::max(x, 0.0);
    case Activation::tanh: return std::tanh(x);
  }
  return 0;
}
constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu,
                                       Activation::relu, Activation::tanh};

TEST_F(ModelOps, ActivationsAndTheirGradientsAreTheFormulas) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const Activation a : kActivations)
      for (const auto& [T, F] : {Sizes{1, 1}, {3, 7}, {2, 128}}) {
        const Tensor x = random_tensor(bench, dtype, {T, F}, 1, 2),
                     dy = random_tensor(bench, dtype, {T, F}, 2), up = random_tensor(bench, dtype, {T, F}, 3),
                     y = bench.empty(dtype, {T, F}), again = bench.empty(dtype, {T, F}),
                     dx = bench.empty(dtype, {T, F}), gated = bench.empty(dtype, {T, F}),
                     dgate = bench.empty(dtype, {T, F}), dup = bench.empty(dtype, {T, F});
        bench.ops->activation({x, y, a}, bench.stream());
        bench.ops->activation_backward({x, dy, dx, again, a}, bench.stream());
        bench.ops->swiglu({x, up, gated, a}, bench.stream());
        bench.ops->swiglu_backward({x, up, dy, dgate, dup, {}, a}, bench.stream());
        const Values X = values(x), G = values(dy), U = values(up);
        const auto each = [&](const auto& of) {
          Values all(X.size());
          for (size_t i = 0; i < X.size(); ++i) all[i] = of(i);
          return all;
        };
        const Values slope = numeric_gradient(X, [&](const Values& moved) {
          double sum = 0;
          for (const double m : moved) sum += activated(a, m);
          return sum;
        });
        const double near = std::max(tolerance(dtype), 1e-9);
        expect_close(values(y), each([&](size_t i) { return activated(a, X[i]); }), tolerance(dtype), "y",
                     0.1);
        EXPECT_TRUE(same_bits(again, y));
        expect_close(values(dx), each([&](size_t i) { return G[i] * slope[i]; }), near, "dx", 0.1);
        expect_close(values(gated), each([&](size_t i) { return activated(a, X[i]) * U[i]; }),
                     tolerance(dtype), "gated", 0.1);
        expect_close(values(dgate), each([&](size_t i) { return G[i] * U[i] * slope[i]; }), near, "dgate",
                     0.1);
        expect_close(values(dup), each([&](size_t i) { return G[i] * activated(a, X[i]); }), tolerance(dtype),
                     "dup", 0.1);
      }
}

// By the number of each element's place in the whole batch, with rows of 101 elements.
TEST_F(ModelOps, DropoutDependsOnTheElementsPlaceOnly) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const auto& [T, D] : {Sizes{1, 1}, {3, 7}, {4, 64}})
      for (const bool with_rows : {false, true}) {
        const Tensor x = random_tensor(bench, dtype, {T, D}, 1), y = bench.empty(dtype, {T, D});
        std::vector<int64_t> rows;
        for (int64_t t = 0; t < T; ++t) rows.push_back(with_rows ? 40 - 7 * t : 5 + t);
        DropoutArgs args{.x = x,
                         .y = y,
                         .rows = with_rows ? ids_tensor(bench, rows) : Tensor(),
                         .key = 77,
                         .probability = 0.3,
                         .first_row = 5,
                         .first_column = 13,
                         .columns = 101};
        bench.ops->dropout(args, bench.stream());
        Values want = values(x);
        for (int64_t i = 0; i < T * D; ++i) {
          const uint64_t number = static_cast<uint64_t>(rows[at(i / D)] * 101 + 13 + i % D);
          want[at(i)] = philox_uniform(77, number) < 0.3 ? 0 : want[at(i)] / 0.7;
        }
        expect_close(y, want, tolerance(dtype), "y");
        const Values got = values(y);
        for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i] == 0, want[i] == 0) << i;
      }
}

TEST_F(ModelOps, RopeTurnsTheFirstElementsAndCopiesTheRest) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const auto& [K, R] : {std::pair<int64_t, int64_t>{6, 2}, {32, 16}, {4, 0}, {8, 8}}) {
      const int64_t T = 5, H = 3;
      const Tensor x = random_tensor(bench, dtype, {T, H * K}, 1), y = bench.empty(dtype, {T, H * K}),
                   cos = random_tensor(bench, accumulator_of(dtype), {T, R / 2}, 2),
                   sin = random_tensor(bench, accumulator_of(dtype), {T, R / 2}, 3);
      RopeArgs args{.x = x, .y = y, .cos = cos, .sin = sin, .positions = {}, .heads = H, .sequence = T};
      bench.ops->rope(args, bench.stream());
      const Values X = values(x), C = values(cos), S = values(sin);
      Values want = X;
      for (int64_t t = 0; t < T; ++t)
        for (int64_t h = 0; h < H; ++h)
          for (int64_t i = 0; i < R / 2; ++i) {
            const size_t first = at((t * H + h) * K + i), second = first + at(R / 2),
                         angle = at(t * (R / 2) + i);
            want[first] = X[first] * C[angle] - X[second] * S[angle];
            want[second] = X[second] * C[angle] + X[first] * S[angle];
          }
      expect_close(y, want, tolerance(dtype), "y");
      args.y = x;
      bench.ops->rope(args, bench.stream());
      EXPECT_TRUE(same_bits(x, y)) << "in place";
    }
}

// The software GPU's architecture, until the end of a scope.
class Architecture {
 public:
  explicit Architecture(int number) {
    gpu_emulation::Settings settings = before_;
    settings.architecture = number;
    gpu_emulation::set(settings);
  }
  ~Architecture() { gpu_emulation::set(before_); }

 private:
  const gpu_emulation::Settings before_ = gpu_emulation::settings();
};

// Rows that lie in shared memory on sm_90, and have no place in the 99 KiB of sm_89.
TEST_F(ModelOps, NormsOfWideRowsHaveTheSameBitsOnGpusWithLessSharedMemory) {
  const int64_t T = 2, D = 14336;
  std::vector<Tensor> first;
  Bench bench;
  for (const int number : {90, 80, 89, 86, 120}) {
    const Architecture architecture(number);
    const Tensor x = random_tensor(bench, DType::bf16, {T, D}, 1),
                 w = random_tensor(bench, DType::bf16, {D}, 2),
                 dy = random_tensor(bench, DType::bf16, {T, D}, 3), y = bench.empty(DType::bf16, {T, D}),
                 dx = bench.empty(DType::bf16, {T, D}), rstd = bench.empty(DType::f32, {T}),
                 dw = tensor(bench, DType::f32, {D}, Values(at(D), 0));
    bench.ops->rmsnorm({.x = x, .residual = {}, .weight = w, .y = y, .sum = {}, .rstd = rstd},
                       bench.stream());
    bench.ops->rmsnorm_backward(
        {.dy = dy, .x = x, .weight = w, .rstd = rstd, .dsum = {}, .dx = dx, .dweight = dw, .y = {}},
        bench.stream());
    bench.stream().synchronize();
    const std::vector<Tensor> results = {y, dx, dw};
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(same_bits(results[i], first[i])) << number << ", " << i;
  }
  EXPECT_EQ(gpu_emulation::report(), "");
}

TEST_F(ModelOps, AKernelThatNeedsMoreSharedMemoryThanTheGpuHasIsRefusedWithTheNumbers) {
  const int64_t D = 30000;
  Bench bench;
  const Architecture architecture(89);
  const Tensor x = bench.empty(DType::f32, {1, D}), w = bench.empty(DType::f32, {D}),
               rstd = bench.empty(DType::f32, {1});
  const Error error = test::error_of([&] {
    bench.ops->rmsnorm({.x = x, .residual = {}, .weight = w, .y = x, .sum = {}, .rstd = rstd},
                       bench.stream());
    bench.stream().synchronize();
  });
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_EQ(
      error.message(),
      "rmsnorm: a row of 30000 elements of 4 bytes needs 120128 bytes of shared memory, and this GPU has "
      "101376");
}

}  // namespace
}  // namespace gangway
