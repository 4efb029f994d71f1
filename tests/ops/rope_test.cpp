#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Case {
  int64_t rows, heads, width, sequence;
  int64_t positions;   // a list of so many for the rows in turn; 0: none
  int64_t turned = 0;  // the elements of a head that turn; 0: all
};

constexpr Case kCases[] = {{0, 1, 2, 1, 0},    {1, 1, 2, 1, 0},   {6, 3, 10, 3, 0},    {7, 2, 64, 5, 7},
                           {5, 1, 34, 5, 5},   {9, 4, 128, 4, 0}, {3, 5, 6, 9, 0},     {9, 2, 10, 1, 3},
                           {4, 1, 6, 1, 1},    {0, 1, 2, 1, 3},   {6, 3, 10, 3, 0, 4}, {7, 2, 64, 5, 7, 48},
                           {3, 1, 40, 3, 0, 2}};

struct Rope {
  Rope(Bench& bench, DType dtype, const Case& c)
      : x(with_gap(bench, dtype, c.rows, c.heads * c.width, 5)),
        y(with_gap(bench, dtype, c.rows, c.heads * c.width, 3)),
        cos(bench.empty(accumulator_of(dtype), {11, (c.turned != 0 ? c.turned : c.width) / 2})),
        sin(bench.empty(accumulator_of(dtype), cos.shape())),
        heads(c.heads),
        sequence(c.sequence) {
    assign(x, random_values(static_cast<size_t>(x.count()), 1));
    const std::vector<double> angles = random_values(static_cast<size_t>(cos.count()), 2, 3);
    std::vector<double> cosines, sines;
    for (const double angle : angles) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    assign(cos, cosines);
    assign(sin, sines);
    if (c.positions == 0) return;
    positions = bench.empty(DType::i32, {c.positions});
    for (int64_t t = 0; t < c.positions; ++t) set_element(positions, t, static_cast<double>(t * 7 % 11));
  }
  RopeArgs args(const Tensor& from, const Tensor& to, bool inverse) const {
    return {from, to, cos, sin, positions, heads, sequence, inverse};
  }

  Tensor x, y, cos, sin, positions;
  int64_t heads, sequence;
};

// Each pair (x1, x2) as a complex number times e^(+-i angle). What does not turn stays.
std::vector<double> reference(const Rope& r, const std::vector<double>& x, bool inverse) {
  std::vector<double> y = x;
  const int64_t half = r.cos.dim(1), rows = r.x.dim(0), width = r.x.dim(1) / r.heads;
  const std::vector<double> cosines = values(r.cos), sines = values(r.sin);
  const std::vector<double> positions = r.positions ? values(r.positions) : std::vector<double>{};
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t h = 0; h < r.heads; ++h)
      for (int64_t i = 0; i < half; ++i) {
        const int64_t p = r.positions
                              ? static_cast<int64_t>(positions[static_cast<size_t>(t) % positions.size()])
                              : t % r.sequence;
        const size_t at = static_cast<size_t>(p * half + i);
        const double c = cosines[at], s = sines[at] * (inverse ? -1 : 1);
        const size_t a = static_cast<size_t>((t * r.heads + h) * width + i),
                     b = a + static_cast<size_t>(half);
        y[a] = x[a] * c - x[b] * s;
        y[b] = x[b] * c + x[a] * s;
      }
  return y;
}

class RotaryEmbedding : public EachIsa {};

TEST_P(RotaryEmbedding, RotatesPairsOfHalves) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const Case& c : kCases)
      for (bool inverse : {false, true}) {
        const Rope r(bench, dtype, c);
        const std::string what = label(GetParam(), dtype) + " " + r.x.shape().text();
        const std::vector<double> want = reference(r, values(r.x), inverse);
        bench.ops->rope(r.args(r.x, r.y, inverse), bench.stream());
        expect_close(r.y, want, tolerance_of(dtype), what);
        bench.ops->rope(r.args(r.x, r.x, inverse), bench.stream());
        EXPECT_EQ(values(r.x), values(r.y)) << what << " in place";
      }
}

TEST_P(RotaryEmbedding, RowsBesideTheViewStay) {
  Bench bench(GetParam());
  const Tensor whole = random_tensor(bench, DType::f32, {4, 3 * 10 + 7}, 5);
  const std::vector<double> before = values(whole);
  const Rope r(bench, DType::f32, {4, 3, 10, 4, 0});
  const Tensor part = whole.slice(1, 2, 32);
  bench.ops->rope(r.args(part, part, false), bench.stream());
  for (int64_t i = 0; i < whole.count(); ++i)
    if (i % 37 < 2 || i % 37 >= 32) {
      EXPECT_EQ(element(whole, i), before[static_cast<size_t>(i)]) << i;
    }
}

TEST_P(RotaryEmbedding, InverseIsTheGradientByFiniteDifferences) {
  Bench bench(GetParam());
  for (const Case& c :
       {Case{1, 1, 2, 1, 0}, Case{3, 2, 6, 2, 0}, Case{2, 1, 14, 1, 2}, Case{3, 2, 8, 2, 0, 4}}) {
    const Rope r(bench, DType::f64, c);
    const std::vector<double> x = values(r.x), g = random_values(x.size(), 9);
    const Tensor dy = tensor(bench, DType::f64, r.x.shape(), g), dx = bench.empty(DType::f64, r.x.shape());
    bench.ops->rope(r.args(dy, dx, true), bench.stream());
    expect_close(dx, numeric_gradient(x, [&](auto& moved) { return dot(reference(r, moved, false), g); }),
                 1e-7, r.x.shape().text());
  }
}

TEST_P(RotaryEmbedding, ThreadsDoNotChangeBits) {
  for (DType dtype : kFloats) {
    std::vector<std::vector<double>> seen;
    for (int threads : {1, 2, 3, 3}) {
      Bench bench(GetParam(), threads);
      const Rope r(bench, dtype, {257, 4, 64, 11, 0});
      bench.ops->rope(r.args(r.x, r.y, false), bench.stream());
      seen.push_back(values(r.y));
      EXPECT_EQ(seen.back(), seen.front()) << label(GetParam(), dtype) << " threads " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RotaryEmbedding, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
