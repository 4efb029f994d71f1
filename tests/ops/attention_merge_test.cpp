#include <limits>

#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

// out and its lse over the later rows of longer tensors, the part's lse of its own: the strides of a ring.
struct Merge {
  Merge(Bench& bench, DType dtype, const Shape& shape, double deviation = 3)
      : batch(shape[0]), sequence(shape[1]), heads(shape[2]), width(shape[3]) {
    const DType wide = accumulator_of(dtype);
    whole_out = random_tensor(bench, wide, {batch, sequence + 3, heads, width}, 1);
    whole_lse = random_tensor(bench, wide, {batch, heads, sequence + 3}, 2, deviation);
    args = {whole_out.slice(1, 3, sequence + 3), whole_lse.slice(2, 3, sequence + 3),
            random_tensor(bench, dtype, shape, 3),
            random_tensor(bench, wide, {batch, heads, sequence}, 4, deviation)};
  }

  // The weighted mean of both, weights by their exponentials. Row-major like `values`.
  void expect(const Values& out, const Values& lse, double tolerance, const std::string& what) const {
    const Values part = values(args.part), part_lse = values(args.part_lse);
    Values want_out = out, want_lse = lse;
    for (int64_t row = 0; row < batch * heads * sequence; ++row) {  // of [B, H, S]
      const int64_t b = row / (heads * sequence), h = row / sequence % heads, s = row % sequence;
      const double l = lse[static_cast<size_t>(row)], p = part_lse[static_cast<size_t>(row)];
      if (p == -kInfinity) continue;
      const double most = std::max(l, p), a = std::exp(l - most), c = std::exp(p - most);
      want_lse[static_cast<size_t>(row)] = most + std::log(a + c);
      for (int64_t d = 0; d < width; ++d) {
        const auto i = static_cast<size_t>(((b * sequence + s) * heads + h) * width + d);
        want_out[i] = (a * out[i] + c * part[i]) / (a + c);
      }
    }
    expect_close(values(args.out), want_out, tolerance, "out " + what, 1);
    expect_close(values(args.lse), want_lse, tolerance, "lse " + what, 1);
  }

  int64_t batch, sequence, heads, width;
  Tensor whole_out, whole_lse;
  AttentionMergeArgs args;
};

class AttentionMerge : public EachIsa {};

TEST_P(AttentionMerge, WeighsBothByTheirExponentials) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 5, 3, 7}, Shape{1, 64, 4, 128}, Shape{3, 9, 1, 33},
                               Shape{0, 4, 2, 8}, Shape{2, 0, 2, 8}}) {
      const Merge m(bench, dtype, shape);
      const Values out = values(m.args.out), lse = values(m.args.lse);
      const Tensor before = m.whole_out.slice(1, 0, 3), before_lse = m.whole_lse.slice(2, 0, 3);
      const Values beside = values(before), beside_lse = values(before_lse);
      bench.ops->attention_merge(m.args, bench.stream());
      const std::string what = label(GetParam(), dtype) + " " + shape.text();
      m.expect(out, lse, dtype == DType::f64 ? 1e-14 : 1e-6, what);
      EXPECT_EQ(values(before), beside) << what;
      EXPECT_EQ(values(before_lse), beside_lse) << what;
    }
}

// Exponentials of differences only, and a result that the part does not reach keeps its bits.
TEST_P(AttentionMerge, FarApartTheLargerOneIsTheResult) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const double far : {-5000.0, 5000.0}) {
      const Merge m(bench, dtype, Shape{1, 4, 2, 5});
      assign(m.args.lse, Values(8, 700));
      assign(m.args.part_lse, Values(8, 700 + far));
      const Values want = values(far > 0 ? m.args.part : m.args.out);
      bench.ops->attention_merge(m.args, bench.stream());
      if (far < 0)
        EXPECT_EQ(values(m.args.out), want);
      else
        expect_close(m.args.out, want, 1e-6, "out");
      EXPECT_EQ(values(m.args.lse), Values(8, 700 + std::max(far, 0.0)));
    }
}

TEST_P(AttentionMerge, RowsThatSawNothingTakeTheOtherSide) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    const Merge m(bench, dtype, Shape{1, 3, 1, 4});
    assign(m.args.out, Values(12, 0));
    assign(m.args.lse, {-kInfinity, -kInfinity, 2});
    assign(m.args.part_lse, {1, -kInfinity, -kInfinity});
    for (int64_t i = 4; i < 12; ++i) set_element(m.args.part, i, 0);
    Values want = values(m.args.part);
    bench.ops->attention_merge(m.args, bench.stream());
    EXPECT_EQ(values(m.args.out), want) << label(GetParam(), dtype);
    EXPECT_EQ(values(m.args.lse), (Values{1, -kInfinity, 2})) << label(GetParam(), dtype);
  }
}

TEST_P(AttentionMerge, NotANumberOnEitherSideStays) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    const Merge m(bench, dtype, Shape{1, 2, 1, 3});
    set_element(m.args.lse, 0, NAN);
    set_element(m.args.part_lse, 1, NAN);
    bench.ops->attention_merge(m.args, bench.stream());
    for (const double x : values(m.args.out)) EXPECT_TRUE(std::isnan(x));
    for (const double x : values(m.args.lse)) EXPECT_TRUE(std::isnan(x));
  }
}

TEST_P(AttentionMerge, ThreadsDoNotChangeBits) {
  std::vector<Values> seen;
  for (int threads : {1, 2, 3}) {
    Bench bench(GetParam(), threads);
    const Merge m(bench, DType::bf16, Shape{2, 300, 4, 40});
    bench.ops->attention_merge(m.args, bench.stream());
    seen.push_back(values(m.args.out));
    EXPECT_EQ(seen.back(), seen.front()) << threads;
  }
}

TEST_P(AttentionMerge, ShapesThatDoNotMeetAreRefused) {
  Bench bench(GetParam());
  const Merge m(bench, DType::bf16, Shape{1, 2, 1, 3});
  AttentionMergeArgs narrow = m.args, short_lse = m.args, other = m.args;
  narrow.out = bench.empty(DType::bf16, {1, 2, 1, 3});
  short_lse.part_lse = bench.empty(DType::f32, {1, 1, 1});
  other.part = bench.empty(DType::bf16, {1, 2, 1, 4});
  for (const AttentionMergeArgs& args : {narrow, short_lse, other})
    EXPECT_THROW(bench.ops->attention_merge(args, bench.stream()), Error);
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionMerge, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
