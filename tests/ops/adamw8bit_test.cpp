// AdamW with averages of 8 bits, beside a search of all 256 values for the nearest below and above.
#include "ops/codes.h"
#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

// The values of ops/codes.h, from the formula that it states.
std::vector<double> table(bool is_signed) {
  std::vector<double> values = {0, 1};
  for (int d = 0; d < 7; ++d) {
    const int n = is_signed ? 1 << d : 2 << d;
    for (int k = 0; k < n; ++k) {
      values.push_back(std::pow(10.0, d - 6) * (0.1 + 0.9 * (k + 0.5) / n));
      if (is_signed) values.push_back(-values.back());
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

TEST(Codes, AreTheValuesOfTheFormula) {
  for (const bool is_signed : {false, true}) {
    const CodeTable& codes = is_signed ? signed_codes() : unsigned_codes();
    const std::vector<double> want = table(is_signed);
    ASSERT_EQ(want.size(), 256u);
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(codes.values[i], static_cast<float>(want[i])) << i;
    for (size_t i = 0; i < 255; ++i) EXPECT_LT(codes.values[i], codes.values[i + 1]) << i;
  }
}

std::vector<uint8_t> codes_of(const Tensor& t) {
  const HostMemory memory(t);
  return {memory.data<uint8_t>(), memory.data<uint8_t>() + t.count()};
}

Tensor codes_tensor(Bench& bench, int64_t count, int first) {
  const Tensor t = bench.empty(DType::u8, {count});
  HostMemory memory(t);
  for (int64_t i = 0; i < count; ++i) memory.data<uint8_t>()[i] = static_cast<uint8_t>(first + i * 37);
  memory.write();
  return t;
}

struct Average {
  bool is_signed;
  std::vector<double> values;

  static Average of(const Tensor& codes, const Tensor& scales, int64_t columns, bool is_signed) {
    const std::vector<uint8_t> read = codes_of(codes);
    const std::vector<double> scale = ops_testing::values(scales), all = table(is_signed);
    Average average{is_signed, {}};
    for (size_t i = 0; i < read.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const auto block = static_cast<size_t>(at / columns * code_blocks(columns) + at % columns / kCodeBlock);
      average.values.push_back(all[read[i]] * scale[block]);
    }
    return average;
  }

  // `got` is this average, rounded: every value to one of the two next to it of the 256 that its block's
  // scale allows, and next to 0 to the nearest.
  void expect_rounded(const Average& got, const std::vector<double>& scales, int64_t columns,
                      const std::string& what) const {
    const std::vector<double> all = table(is_signed);
    for (int64_t row = 0; row * columns < static_cast<int64_t>(values.size()); ++row)
      for (int64_t first = 0; first < columns; first += kCodeBlock) {
        const auto begin = values.begin() + row * columns + first;
        const auto end = begin + std::min(kCodeBlock, columns - first);
        double most = 0;
        for (auto x = begin; x != end; ++x) most = std::max(most, std::fabs(*x));
        const double scale = scales[static_cast<size_t>(row * code_blocks(columns) + first / kCodeBlock)];
        ASSERT_NEAR(scale, most, 1e-6 * most) << what;
        for (auto x = begin; x != end; ++x) {
          // A value beyond the table's ends has one neighbour.
          const auto above = std::lower_bound(all.begin(), all.end(), scale == 0 ? 0 : *x / scale);
          const double high = above == all.end() ? all.back() : *above;
          const double low = above == all.begin() ? high : *std::prev(above);
          const double gap = low == 0 || high == 0 ? (high - low) / 2 : high - low;
          const double beyond = std::max({0.0, *x - high * scale, low * scale - *x});
          const auto i = static_cast<size_t>(x - values.begin());
          ASSERT_LE(std::fabs(got.values[i] - *x), gap * scale + beyond + 1e-6 * scale)
              << what << " element " << i;
        }
      }
  }
};

using Sizes = std::pair<int64_t, int64_t>;

struct Trial {
  Tensor p, g, m, v, m_scale, v_scale, copy;
  AdamW8bitArgs args(int64_t columns) const {
    AdamW8bitArgs a;
    a.p = p, a.g = g, a.m = m, a.v = v, a.m_scale = m_scale, a.v_scale = v_scale, a.copy = copy;
    a.control = {.lr = 0.01, .scale = 0.5, .clip = 0.8, .step = 3};
    a.lr_scale = 0.7;
    a.weight_decay = 0.1;
    a.columns = columns;
    return a;
  }
};

Trial trial(Bench& bench, DType p, DType g, int64_t rows, int64_t columns) {
  const int64_t count = rows * columns, blocks = rows * code_blocks(columns);
  Trial t;
  t.p = random_tensor(bench, p, {count}, 1);
  t.g = random_tensor(bench, g, {count}, 2);
  t.m = codes_tensor(bench, count, 3);
  t.v = codes_tensor(bench, count, 5);
  std::vector<double> scales(static_cast<size_t>(blocks));
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = i % 3 == 0 ? 0 : 0.01 * static_cast<double>(i % 5 + 1);
  t.m_scale = tensor(bench, DType::f32, {blocks}, scales);
  t.v_scale = tensor(bench, DType::f32, {blocks}, scales);
  t.copy = bench.empty(DType::bf16, {count});
  return t;
}

void expect_step(Bench& bench, DType p, DType g, int64_t rows, int64_t columns, const std::string& what) {
  const Trial t = trial(bench, p, g, rows, columns);
  const AdamW8bitArgs a = t.args(columns);
  Average m = Average::of(t.m, t.m_scale, columns, true), v = Average::of(t.v, t.v_scale, columns, false);
  const std::vector<double> gradients = values(t.g);
  std::vector<double> want = values(t.p);
  for (size_t i = 0; i < want.size(); ++i) {
    const double x = gradients[i] * 0.4;
    m.values[i] = 0.9 * m.values[i] + 0.1 * x;
    v.values[i] = 0.999 * v.values[i] + 0.001 * x * x;
    const double m_hat = m.values[i] / (1 - std::pow(0.9, 3)), v_hat = v.values[i] / (1 - std::pow(0.999, 3));
    want[i] -= 0.007 * (m_hat / (std::sqrt(v_hat) + 1e-8) + 0.1 * want[i]);
  }
  bench.ops->adamw8bit(a, bench.stream());
  expect_close(t.p, want, 1e-5, what);
  m.expect_rounded(Average::of(t.m, t.m_scale, columns, true), values(t.m_scale), columns, what + " m");
  v.expect_rounded(Average::of(t.v, t.v_scale, columns, false), values(t.v_scale), columns, what + " v");
  const std::vector<double> stepped = values(t.p), copy = values(t.copy);
  for (size_t i = 0; i < stepped.size(); ++i) ASSERT_EQ(copy[i], rounded(DType::bf16, stepped[i])) << what;
}

TEST(AdamW8bit, StepsAsAdamWAndRoundsToOneOfTheTwoNextValues) {
  for (cpu::Isa isa : available_isas())
    for (DType p : {DType::f32, DType::f64})
      for (DType g : {DType::f32, DType::bf16})
        for (const auto& [rows, columns] :
             std::vector<Sizes>{{0, 5}, {1, 1}, {3, 63}, {2, 64}, {3, 65}, {5, 200}, {1, 1000}}) {
          Bench bench(isa, 2);
          expect_step(bench, p, g, rows, columns,
                      label(isa, p) + " " + std::to_string(rows) + " x " + std::to_string(columns));
        }
}

TEST(AdamW8bit, ABlockOfZerosStaysZero) {
  Bench bench;
  Trial t = trial(bench, DType::f32, DType::f32, 1, 70);
  assign(t.g, std::vector<double>(70, 0));
  assign(t.m_scale, {0, 0});
  assign(t.v_scale, {0, 0});
  const std::vector<double> before = values(t.p);
  AdamW8bitArgs a = t.args(70);
  a.weight_decay = 0;
  bench.ops->adamw8bit(a, bench.stream());
  EXPECT_EQ(values(t.p), before);
  EXPECT_EQ(values(t.m_scale), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(t.v_scale), (std::vector<double>{0, 0}));
}

// Rounding to the nearest, elements keep their share of the block's scale, and 0.01 stays at 1. The largest
// element's code is exact.
TEST(AdamW8bit, AnAverageWithADecayNearOneFollowsTheSquaresOfEveryElement) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa, 2);
    const int64_t count = 8 * 64, steps = 1500;
    Trial t = trial(bench, DType::f32, DType::f32, 8, 64);
    std::vector<double> g(static_cast<size_t>(count));
    assign(t.m_scale, std::vector<double>(8, 0));
    assign(t.v_scale, std::vector<double>(8, 0));
    for (int64_t step = 1; step <= steps; ++step) {
      // All equal at first; then all elements but the first of each block have a third.
      for (size_t i = 0; i < g.size(); ++i) g[i] = step <= 500 || i % 64 == 0 ? 1 : 1.0 / 3;
      assign(t.g, g);
      AdamW8bitArgs a = t.args(64);
      a.control = {.lr = 0, .step = step};
      a.rounding.key = static_cast<uint64_t>(step);
      bench.ops->adamw8bit(a, bench.stream());
    }
    const Average v = Average::of(t.v, t.v_scale, 64, false);
    double sum = 0;
    for (size_t i = 0; i < v.values.size(); ++i) sum += i % 64 == 0 ? 0 : v.values[i] / 8 / 63;
    const double after_500 = 1 - std::pow(0.999, 500), left = std::pow(0.999, 1000);
    const double want = after_500 * left + (1 - left) / 9;
    EXPECT_NEAR(sum / want, 1, 0.04) << cpu::name(isa);
  }
}

// A rank has whole rows or whole blocks of rows.
TEST(AdamW8bit, PiecesOfRowsAndBlocksHaveTheBitsOfTheWhole) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa, 2);
    const Trial whole = trial(bench, DType::f32, DType::f32, 4, 150),
                same = trial(bench, DType::f32, DType::f32, 4, 150);
    bench.ops->adamw8bit(whole.args(150), bench.stream());
    for (const auto& [first, last] : std::vector<Sizes>{{0, 1}, {1, 4}}) {
      AdamW8bitArgs a = same.args(150);
      for (Tensor* const t : {&a.p, &a.g, &a.m, &a.v, &a.copy}) *t = t->slice(0, first * 150, last * 150);
      for (Tensor* const t : {&a.m_scale, &a.v_scale}) *t = t->slice(0, first * 3, last * 3);
      a.rounding.first = first * 150;
      bench.ops->adamw8bit(a, bench.stream());
    }
    EXPECT_EQ(values(whole.p), values(same.p));
    EXPECT_EQ(codes_of(whole.m), codes_of(same.m));
    EXPECT_EQ(codes_of(whole.v), codes_of(same.v));
    EXPECT_EQ(values(whole.m_scale), values(same.m_scale));
  }
}

}  // namespace
}  // namespace gangway
