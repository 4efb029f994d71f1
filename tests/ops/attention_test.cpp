#include "ops/attention_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;
using namespace attention_testing;

constexpr Case kCases[] = {
    {1, 1, 1, 1, 1, 1},
    {1, 1, 1, 3, 1, 7, false},
    {2, 5, 5, 4, 2, 8},
    {1, 1, 9, 3, 1, 5, true, 8, 0},  // one new token after eight
    {1, 70, 131, 2, 2, 33, true, 61, 0},
    {1, 131, 70, 6, 3, 12, false},
    {2, 67, 67, 6, 2, 16, true},
    {1, 9, 9, 2, 1, 64, true, 0, 4},    // the first four rows see nothing
    {1, 6, 8, 2, 2, 8, true, 0, 100},   // nobody sees anything
    {1, 8, 6, 2, 2, 24, true, 100, 0},  // everybody sees everything
    {1, 3, 0, 2, 1, 8},                 // no keys
    {1, 0, 3, 2, 1, 8},                 // no queries
    {0, 3, 3, 2, 1, 8},
    {1, 40, 700, 2, 1, 128, true, 660, 0},  // too long to be packed whole in f64
    {1, 80, 80, 1, 1, 130, true},
    {1, 70, 70, 2, 1, 64},
    {1, 20, 40, 2, 1, 256, true, 20, 0},
    {1, 150, 200, 6, 2, 20, true, 50, 0},  // tiles of rows and blocks of keys that do not end together
    {1, 130, 90, 3, 1, 16, true, 0, 41},   // whole tiles that see nothing
};

class AttentionKernel : public EachIsa {};

TEST_P(AttentionKernel, ForwardMatchesTheDefinition) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const Case& c : kCases) {
      const Attention a(bench, dtype, c);
      const Result want = reference(c, values(a.q), values(a.k), values(a.v));
      bench.ops->attention(a.args(), bench.stream());
      const std::string what = label(GetParam(), dtype) + " " + c.text();
      expect_close(a.out, want.out, tolerance_of(dtype), "out " + what);
      // 16-bit inputs are exact in f32, so the statistics are as good as f32's.
      expect_close(a.lse, want.lse, dtype == DType::f64 ? 1e-12 : 2e-5, "lse " + what);
    }
}

TEST_P(AttentionKernel, LseIsOptional) {
  Bench bench(GetParam());
  const Attention a(bench, DType::f32, kCases[2]), b(bench, DType::f32, kCases[2]);
  bench.ops->attention(a.args(), bench.stream());
  AttentionArgs without = b.args();
  without.lse = {};
  bench.ops->attention(without, bench.stream());
  EXPECT_TRUE(same_bits(a.out, b.out));
}

// Scores of hundreds to thousands: exponentials of differences only.
TEST_P(AttentionKernel, LargeScoresStayFinite) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    const Case c{1, 90, 90, 2, 1, 32};
    const Attention a(bench, dtype, c, 30);
    const Result want = reference(c, values(a.q), values(a.k), values(a.v));
    bench.ops->attention(a.args(), bench.stream());
    // An f32 score of 1000 is known to 1e-4, and so are ratios of exponentials.
    expect_close(a.out, want.out, dtype == DType::f64 ? 1e-10 : rounding_of(dtype) + 2e-3, "out");
    expect_close(a.lse, want.lse, dtype == DType::f64 ? 1e-12 : 2e-5, "lse");
  }
}

TEST_P(AttentionKernel, GradientsMatchFiniteDifferences) {
  Bench bench(GetParam());
  const Case cases[] = {{1, 1, 1, 1, 1, 1},
                        {1, 3, 3, 2, 1, 5},
                        {2, 1, 3, 2, 2, 2, true, 2, 0},
                        {1, 5, 4, 3, 3, 3, false},
                        {1, 4, 3, 2, 1, 1, true, 0, 1},
                        {1, 11, 5, 6, 3, 3, true, 2, 0}};
  for (const Case& c : cases) {
    const Attention a(bench, DType::f64, c);
    bench.ops->attention(a.args(), bench.stream());
    const Gradients got = backward(bench, a, DType::f64, false);
    const Values q = values(a.q), k = values(a.k), v = values(a.v), g = values(a.dout);
    // For one key the probabilities are 1 whatever q and k are; their gradients are 0 up to rounding.
    const auto close = [&](const Tensor& t, const Values& want, const char* what) {
      expect_close(values(t), want, 1e-7, what + c.text(), 1e-5);
    };
    close(got.dq, numeric_gradient(q, [&](auto& x) { return dot(reference(c, x, k, v).out, g); }), "dq ");
    close(got.dk, numeric_gradient(k, [&](auto& x) { return dot(reference(c, q, x, v).out, g); }), "dk ");
    close(got.dv, numeric_gradient(v, [&](auto& x) { return dot(reference(c, q, k, x).out, g); }), "dv ");
  }
}

TEST_P(AttentionKernel, BackwardMatchesTheFormulas) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const Case& c : kCases) {
      const Attention a(bench, dtype, c);
      bench.ops->attention(a.args(), bench.stream());
      const ReferenceGradients want = reference_backward(a);
      const std::string what = label(GetParam(), dtype) + " " + c.text();
      const double tolerance = dtype == DType::f64 ? 1e-11 : std::max(5e-5, 5 * rounding_of(dtype));
      const Gradients got = backward(bench, a, dtype, false);
      // Where the exact gradient is 0 (one key), cancelling leaves the rounding of numbers near 1.
      expect_close(values(got.dq), want.dq, tolerance, "dq " + what, 0.2);
      expect_close(values(got.dk), want.dk, tolerance, "dk " + what, 0.2);
      expect_close(values(got.dv), want.dv, tolerance, "dv " + what, 0.2);
    }
}

// f32 gradients beside 16-bit activations, written and added to.
TEST_P(AttentionKernel, GradientsMayBeWideAndAccumulate) {
  Bench bench(GetParam());
  const Case c{2, 37, 37, 4, 2, 24};
  for (DType dtype : kFloats) {
    const Attention a(bench, dtype, c);
    bench.ops->attention(a.args(), bench.stream());
    const DType wide = accumulator_of(dtype);
    const Gradients written = backward(bench, a, wide, false), added = backward(bench, a, wide, true, 0.25);
    const Tensor pairs[][2] = {{written.dq, added.dq}, {written.dk, added.dk}, {written.dv, added.dv}};
    for (const auto& pair : pairs) {
      Values want = values(pair[0]);
      for (double& x : want) x = wide == DType::f32 ? static_cast<float>(x) + 0.25f : x + 0.25;
      EXPECT_EQ(values(pair[1]), want) << label(GetParam(), dtype);
    }
    if (dtype == wide) continue;
    const Gradients narrow = backward(bench, a, dtype, false);
    Values want = values(written.dk);
    for (double& x : want) x = rounded(dtype, x);
    EXPECT_EQ(values(narrow.dk), want);
  }
}

// Rows that begin anywhere, beside rows at multiples of 16 bytes.
TEST_P(AttentionKernel, WhereRowsBeginChangesNoBit) {
  Bench bench(GetParam());
  const Case c{2, 37, 37, 4, 2, 24};
  const auto shifted = [&](const Tensor& t) {
    Shape wider = t.shape();
    wider[3] += 1;
    const Tensor copy = bench.empty(t.dtype(), wider).slice(3, 1, c.width + 1);
    assign(copy, values(t));
    return copy;
  };
  for (DType dtype : {DType::bf16, DType::f16}) {
    const Attention a(bench, dtype, c);
    Attention moved = a;
    moved.q = shifted(a.q);
    moved.k = shifted(a.k);
    moved.v = shifted(a.v);
    moved.dout = shifted(a.dout);
    moved.out = shifted(a.out);
    moved.lse = bench.empty(DType::f32, a.lse.shape());
    bench.ops->attention(a.args(), bench.stream());
    bench.ops->attention(moved.args(), bench.stream());
    EXPECT_EQ(values(moved.out), values(a.out));
    EXPECT_EQ(values(moved.lse), values(a.lse));
    const Gradients want = backward(bench, a, dtype, false), got = backward(bench, moved, dtype, false);
    EXPECT_EQ(values(got.dq), values(want.dq));
    EXPECT_EQ(values(got.dk), values(want.dk));
    EXPECT_EQ(values(got.dv), values(want.dv));
  }
}

// A ring of context parallelism in small: the keys in two parts, merged by their lse; then the gradients from
// the final out and lse, part by part.
TEST_P(AttentionKernel, HalvesOfTheKeysMergeToTheWhole) {
  Bench bench(GetParam());
  for (const bool causal : {true, false})
    for (const int64_t cut : {32, 5, 0}) {
      const Case c{2, 64, 64, 4, 2, 16, causal};
      const Attention whole(bench, DType::f64, c);
      bench.ops->attention(whole.args(), bench.stream());
      const Gradients want = backward(bench, whole, DType::f64, false);

      Values out, lse;
      std::vector<Attention> parts;
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, c.sk}}) {
        Attention part = whole;
        part.c.sk = last - first;
        part.c.k_offset = first;
        part.k = whole.k.slice(1, first, last);
        part.v = whole.v.slice(1, first, last);
        part.out = bench.empty(DType::f64, whole.out.shape());
        part.lse = bench.empty(DType::f64, whole.lse.shape());
        bench.ops->attention(part.args(), bench.stream());
        const Values part_out = values(part.out), part_lse = values(part.lse);
        if (parts.empty()) {
          out = part_out;
          lse = part_lse;
        } else {
          for (int64_t row = 0; row < whole.lse.count(); ++row) {  // row of [B, H, S]
            const int64_t b = row / (c.heads * c.sq), h = row / c.sq % c.heads, i = row % c.sq;
            double &l = lse[static_cast<size_t>(row)], p = part_lse[static_cast<size_t>(row)];
            if (p == -kInfinity) continue;
            const double weight = l == -kInfinity ? 1 : 1 / (1 + std::exp(l - p));
            for (int64_t d = 0; d < c.width; ++d) {
              const size_t at = static_cast<size_t>(((b * c.sq + i) * c.heads + h) * c.width + d);
              out[at] += weight * (part_out[at] - out[at]);
            }
            l = l == -kInfinity ? p : l + std::log1p(std::exp(p - l));
          }
        }
        parts.push_back(part);
      }
      expect_close(out, values(whole.out), 1e-12, "out");
      expect_close(lse, values(whole.lse), 1e-12, "lse");

      const auto zeros = [&](const Shape& shape) {
        return tensor(bench, DType::f64, shape, Values(static_cast<size_t>(shape.count()), 0));
      };
      const Tensor dq = zeros(c.q_shape()), dk = zeros(c.k_shape()), dv = zeros(c.k_shape());
      for (Attention& part : parts) {
        assign(part.out, out);
        assign(part.lse, lse);
        const int64_t first = part.c.k_offset, last = first + part.c.sk;
        bench.ops->attention_backward(
            part.backward_args(dq, dk.slice(1, first, last), dv.slice(1, first, last), true), bench.stream());
      }
      expect_close(dq, values(want.dq), 1e-12, "dq");
      expect_close(dk, values(want.dk), 1e-12, "dk");
      expect_close(dv, values(want.dv), 1e-12, "dv");
    }
}

// Queries of a later part of the sequence beside all keys: what a rank with the tail chunk does.
TEST_P(AttentionKernel, QueriesOfATailSeeWhatTheWholeShows) {
  Bench bench(GetParam());
  const Case c{1, 60, 60, 2, 1, 8};
  const Attention whole(bench, DType::f64, c);
  bench.ops->attention(whole.args(), bench.stream());
  Attention tail = whole;
  tail.c.sq = 17;
  tail.c.q_offset = 43;
  tail.q = whole.q.slice(1, 43, 60);
  tail.out = bench.empty(DType::f64, tail.c.q_shape());
  tail.lse = bench.empty(DType::f64, {1, 2, 17});
  bench.ops->attention(tail.args(), bench.stream());
  expect_close(tail.out, values(whole.out.slice(1, 43, 60)), 1e-12, "out");
  expect_close(tail.lse, values(whole.lse.slice(2, 43, 60)), 1e-12, "lse");
}

// A task is whole on one thread: neither runs nor thread counts change a bit.
TEST_P(AttentionKernel, BitsAreTheSameRunToRunAndOnAnyNumberOfThreads) {
  const Case c{3, 70, 70, 4, 2, 40};
  for (DType dtype : kFloats) {
    std::vector<Values> first;
    for (int threads : {1, 1, 2, 3}) {
      Bench bench(GetParam(), threads);
      const Attention a(bench, dtype, c);
      bench.ops->attention(a.args(), bench.stream());
      const Gradients g = backward(bench, a, dtype, false);
      const std::vector<Values> now = {values(a.out), values(a.lse), values(g.dq), values(g.dk),
                                       values(g.dv)};
      if (first.empty()) first = now;
      EXPECT_EQ(now, first) << label(GetParam(), dtype) << " threads " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionKernel, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
