// Key ranges of documents and windows, caps of scores, and sinks.
#include "ops/attention_testing.h"

namespace gangway {
namespace {

using namespace attention_testing;

constexpr Case kCases[] = {
    {.batch = 1, .sq = 1, .sk = 1, .heads = 1, .groups = 1, .width = 1, .window = 1},
    {.batch = 2, .sq = 5, .sk = 5, .heads = 4, .groups = 2, .width = 8, .document = 1},
    {.batch = 3, .sq = 70, .sk = 70, .heads = 4, .groups = 2, .width = 16, .document = 37},
    {.batch = 2, .sq = 67, .sk = 67, .heads = 3, .groups = 1, .width = 7, .document = 20, .shared = true},
    {.batch = 1, .sq = 192, .sk = 192, .heads = 1, .groups = 1, .width = 32, .document = 64},
    // Windows shorter than, as long as and longer than a block of keys.
    {.batch = 1, .sq = 150, .sk = 150, .heads = 2, .groups = 2, .width = 12, .window = 5},
    {.batch = 1, .sq = 150, .sk = 150, .heads = 2, .groups = 1, .width = 12, .window = 64},
    {.batch = 1, .sq = 200, .sk = 200, .heads = 1, .groups = 1, .width = 12, .window = 100},
    // Windows shorter than, as long as and longer than the documents.
    {.batch = 2, .sq = 130, .sk = 130, .heads = 2, .groups = 1, .width = 16, .document = 40, .window = 9},
    {.batch = 2, .sq = 130, .sk = 130, .heads = 2, .groups = 1, .width = 16, .document = 40, .window = 40},
    {.batch = 2, .sq = 130, .sk = 130, .heads = 2, .groups = 1, .width = 16, .document = 40, .window = 70},
    // Tokens between the documents that see nothing.
    {.batch = 2, .sq = 90, .sk = 90, .heads = 2, .groups = 2, .width = 8, .document = 23, .padding = 9},
    // Every token sees its whole document.
    {.batch = 2, .sq = 90, .sk = 90, .heads = 2, .groups = 2, .width = 8, .causal = false, .document = 33},
    // Keys of another part of the sequence than the queries: some or all queries see nothing.
    {.batch = 2,
     .sq = 70,
     .sk = 40,
     .heads = 4,
     .groups = 2,
     .width = 8,
     .q_offset = 100,
     .k_offset = 64,
     .document = 50},
    {.batch = 1,
     .sq = 64,
     .sk = 64,
     .heads = 2,
     .groups = 1,
     .width = 8,
     .q_offset = 64,
     .k_offset = 0,
     .window = 30},
    {.batch = 1, .sq = 20, .sk = 70, .heads = 2, .groups = 1, .width = 8, .q_offset = 500, .window = 30},
    {.batch = 1, .sq = 3, .sk = 0, .heads = 2, .groups = 1, .width = 8, .window = 2},
    {.batch = 1, .sq = 0, .sk = 3, .heads = 2, .groups = 1, .width = 8, .window = 2},
    // Too long to be packed whole in f64.
    {.batch = 1, .sq = 40, .sk = 700, .heads = 2, .groups = 1, .width = 128, .q_offset = 660, .window = 300},
    {.batch = 2, .sq = 70, .sk = 70, .heads = 4, .groups = 2, .width = 16, .cap = 0.7},
    {.batch = 1, .sq = 20, .sk = 90, .heads = 2, .groups = 1, .width = 33, .causal = false, .cap = 30},
    {.batch = 2, .sq = 70, .sk = 70, .heads = 4, .groups = 2, .width = 16, .sinks = true},
    {.batch = 1, .sq = 9, .sk = 9, .heads = 2, .groups = 1, .width = 64, .k_offset = 4, .sinks = true},
    {.batch = 2,
     .sq = 130,
     .sk = 130,
     .heads = 6,
     .groups = 2,
     .width = 16,
     .document = 40,
     .window = 30,
     .padding = 3,
     .cap = 2,
     .sinks = true},
};

class AttentionMask : public EachIsa {};

TEST_P(AttentionMask, ForwardMatchesTheDefinition) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const Case& c : kCases) {
      const Attention a(bench, dtype, c);
      const Result want =
          reference(c, values(a.q), values(a.k), values(a.v), a.sinks ? values(a.sinks) : Values{});
      bench.ops->attention(a.args(), bench.stream());
      const std::string what = label(GetParam(), dtype) + " " + c.text();
      expect_close(a.out, want.out, tolerance_of(dtype), "out " + what);
      expect_close(a.lse, want.lse, dtype == DType::f64 ? 1e-12 : 2e-5, "lse " + what);
    }
}

TEST_P(AttentionMask, BackwardMatchesTheFormulas) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const Case& c : kCases) {
      const Attention a(bench, dtype, c);
      bench.ops->attention(a.args(), bench.stream());
      const ReferenceGradients want = reference_backward(a);
      const std::string what = label(GetParam(), dtype) + " " + c.text();
      const double tolerance = dtype == DType::f64 ? 1e-11 : std::max(5e-5, 5 * rounding_of(dtype));
      const Gradients got = backward(bench, a, dtype, false);
      expect_close(values(got.dq), want.dq, tolerance, "dq " + what, 0.2);
      expect_close(values(got.dk), want.dk, tolerance, "dk " + what, 0.2);
      expect_close(values(got.dv), want.dv, tolerance, "dv " + what, 0.2);
      if (c.sinks) expect_close(values(got.dsinks), want.dsinks, tolerance, "dsinks " + what, 0.2);
    }
}

TEST_P(AttentionMask, GradientsMatchFiniteDifferences) {
  Bench bench(GetParam());
  const Case cases[] = {
      {.batch = 2, .sq = 9, .sk = 9, .heads = 2, .groups = 1, .width = 3, .document = 4, .window = 3},
      {.batch = 1, .sq = 5, .sk = 5, .heads = 2, .groups = 1, .width = 3, .cap = 1.5},
      {.batch = 2,
       .sq = 4,
       .sk = 4,
       .heads = 4,
       .groups = 2,
       .width = 2,
       .document = 3,
       .padding = 1,
       .cap = 3,
       .sinks = true}};
  for (const Case& c : cases) {
    const Attention a(bench, DType::f64, c);
    bench.ops->attention(a.args(), bench.stream());
    const Gradients got = backward(bench, a, DType::f64, false);
    const Values q = values(a.q), k = values(a.k), v = values(a.v), g = values(a.dout);
    const Values sinks = a.sinks ? values(a.sinks) : Values{};
    const auto close = [&](const Tensor& t, const Values& want, const char* what) {
      expect_close(values(t), want, 1e-7, what + c.text(), 1e-5);
    };
    close(got.dq, numeric_gradient(q, [&](auto& x) { return dot(reference(c, x, k, v, sinks).out, g); }),
          "dq ");
    close(got.dk, numeric_gradient(k, [&](auto& x) { return dot(reference(c, q, x, v, sinks).out, g); }),
          "dk ");
    close(got.dv, numeric_gradient(v, [&](auto& x) { return dot(reference(c, q, k, x, sinks).out, g); }),
          "dv ");
    if (!c.sinks) continue;
    close(got.dsinks, numeric_gradient(sinks, [&](auto& x) { return dot(reference(c, q, k, v, x).out, g); }),
          "dsinks ");
  }
}

TEST_P(AttentionMask, RangesOfACausalMaskGiveItsBits) {
  Bench bench(GetParam());
  for (DType dtype : kFloats) {
    const Attention causal(
        bench, dtype,
        {.batch = 2, .sq = 70, .sk = 131, .heads = 6, .groups = 2, .width = 24, .q_offset = 61});
    Case c = causal.c;
    c.window = 1000;
    const Attention ranges(bench, dtype, c);
    bench.ops->attention(causal.args(), bench.stream());
    bench.ops->attention(ranges.args(), bench.stream());
    EXPECT_TRUE(same_bits(ranges.out, causal.out)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(ranges.lse, causal.lse)) << label(GetParam(), dtype);
    const Gradients want = backward(bench, causal, dtype, false), got = backward(bench, ranges, dtype, false);
    EXPECT_TRUE(same_bits(got.dq, want.dq)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(got.dk, want.dk)) << label(GetParam(), dtype);
    EXPECT_TRUE(same_bits(got.dv, want.dv)) << label(GetParam(), dtype);
  }
}

// The queries, keys, results and gradients of the tokens from `first` on.
struct Later {
  Later(const Attention& a, const Gradients& g, int64_t first)
      : all{values(a.out.slice(1, first, a.c.sq)), values(a.lse.slice(2, first, a.c.sq)),
            values(g.dq.slice(1, first, a.c.sq)), values(g.dk.slice(1, first, a.c.sq)),
            values(g.dv.slice(1, first, a.c.sq))} {}
  std::vector<Values> all;
};

TEST_P(AttentionMask, AChangeInADocumentLeavesTheBitsOfTheOthersAlone) {
  Bench bench(GetParam());
  for (DType dtype : kFloats)
    for (const int64_t window : {0, 20}) {
      const Case c{.batch = 1,
                   .sq = 100,
                   .sk = 100,
                   .heads = 4,
                   .groups = 2,
                   .width = 16,
                   .document = 50,
                   .window = window,
                   .cap = 5,
                   .sinks = true};
      const Attention a(bench, dtype, c), b(bench, dtype, c);
      for (const Tensor& t : {b.q, b.k, b.v, b.dout}) {
        const Tensor part = t.slice(1, 0, 50);
        assign(part, random_values(static_cast<size_t>(part.count()), 9, 2));
      }
      bench.ops->attention(a.args(), bench.stream());
      bench.ops->attention(b.args(), bench.stream());
      const Gradients of_a = backward(bench, a, dtype, false), of_b = backward(bench, b, dtype, false);
      EXPECT_EQ(Later(b, of_b, 50).all, Later(a, of_a, 50).all) << label(GetParam(), dtype);
      EXPECT_NE(Later(b, of_b, 49).all, Later(a, of_a, 49).all) << label(GetParam(), dtype);
    }
}

// A NaN would spread from any block that is computed, because a probability of 0 does not remove it.
TEST_P(AttentionMask, BlocksThatNoQuerySeesAreNotComputed) {
  Bench bench(GetParam());
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Case c{.batch = 1, .sq = 356, .sk = 356, .heads = 2, .groups = 1, .width = 16, .document = 256};
    const Attention a(bench, dtype, c);
    for (const Tensor& t : {a.q, a.k, a.v, a.dout}) {
      const Tensor part = t.slice(1, 0, 256);
      assign(part, Values(static_cast<size_t>(part.count()), NAN));
    }
    bench.ops->attention(a.args(), bench.stream());
    const Gradients g = backward(bench, a, dtype, false);
    for (const Values& part : Later(a, g, 256).all)
      for (const double x : part) ASSERT_TRUE(std::isfinite(x)) << label(GetParam(), dtype);
  }
}

TEST_P(AttentionMask, PackedDocumentsEqualSeparateOnes) {
  Bench bench(GetParam());
  for (const int64_t window : {0, 10, 43, 90}) {
    const Case c{.batch = 2,
                 .sq = 129,
                 .sk = 129,
                 .heads = 4,
                 .groups = 2,
                 .width = 16,
                 .document = 43,
                 .window = window,
                 .shared = true};
    const Attention packed(bench, DType::f64, c);
    bench.ops->attention(packed.args(), bench.stream());
    const Gradients got = backward(bench, packed, DType::f64, false);
    for (int64_t first = 0; first < c.sq; first += 43) {
      const auto part = [&](const Tensor& t) { return t.slice(1, first, first + 43); };
      Attention one(bench, DType::f64,
                    {.batch = 2, .sq = 43, .sk = 43, .heads = 4, .groups = 2, .width = 16, .window = window});
      assign(one.q, values(part(packed.q)));
      assign(one.k, values(part(packed.k)));
      assign(one.v, values(part(packed.v)));
      assign(one.dout, values(part(packed.dout)));
      bench.ops->attention(one.args(), bench.stream());
      const Gradients want = backward(bench, one, DType::f64, false);
      expect_close(values(part(packed.out)), values(one.out), 1e-12, "out");
      expect_close(values(packed.lse.slice(2, first, first + 43)), values(one.lse), 1e-12, "lse");
      expect_close(values(part(got.dq)), values(want.dq), 1e-12, "dq");
      expect_close(values(part(got.dk)), values(want.dk), 1e-12, "dk");
      expect_close(values(part(got.dv)), values(want.dv), 1e-12, "dv");
    }
  }
}

TEST_P(AttentionMask, GradientsMayBeWideAndAccumulate) {
  Bench bench(GetParam());
  const Case c{.batch = 2,
               .sq = 37,
               .sk = 37,
               .heads = 4,
               .groups = 2,
               .width = 24,
               .document = 15,
               .window = 10,
               .cap = 4,
               .sinks = true};
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
  }
}

// A ring's last call gives the gradient of the sinks: it depends on the final out and lse, not on the keys.
TEST_P(AttentionMask, SinksTakeTheirGradientFromOneCallAndAddIt) {
  Bench bench(GetParam());
  const Case c{.batch = 2, .sq = 30, .sk = 30, .heads = 4, .groups = 2, .width = 8, .sinks = true};
  const Attention a(bench, DType::f64, c);
  bench.ops->attention(a.args(), bench.stream());
  const Values whole = values(backward(bench, a, DType::f64, false).dsinks);
  Attention part = a;
  part.c.sk = 10;
  part.k = a.k.slice(1, 0, 10);
  part.v = a.v.slice(1, 0, 10);
  const Tensor dq = bench.empty(DType::f64, c.q_shape()), dk = bench.empty(DType::f64, part.c.k_shape()),
               dv = bench.empty(DType::f64, part.c.k_shape()),
               dsinks = tensor(bench, DType::f64, {4}, {0.5, 0.5, 0.5, 0.5});
  bench.ops->attention_backward(part.backward_args(dq, dk, dv, false, dsinks), bench.stream());
  for (size_t h = 0; h < 4; ++h) EXPECT_NEAR(values(dsinks)[h], whole[h] + 0.5, 1e-13);
}

TEST_P(AttentionMask, BitsAreTheSameOnAnyNumberOfThreads) {
  const Case c{.batch = 3,
               .sq = 70,
               .sk = 70,
               .heads = 4,
               .groups = 2,
               .width = 40,
               .document = 30,
               .window = 20,
               .cap = 4,
               .sinks = true};
  for (DType dtype : {DType::f64, DType::bf16}) {
    std::vector<Values> first;
    for (int threads : {1, 2, 3}) {
      Bench bench(GetParam(), threads);
      const Attention a(bench, dtype, c);
      bench.ops->attention(a.args(), bench.stream());
      const Gradients g = backward(bench, a, dtype, false);
      const std::vector<Values> now = {values(a.out), values(a.lse), values(g.dq),
                                       values(g.dk),  values(g.dv),  values(g.dsinks)};
      if (first.empty()) first = now;
      EXPECT_EQ(now, first) << label(GetParam(), dtype) << " threads " << threads;
    }
  }
}

TEST_P(AttentionMask, ArgumentsThatDoNotMeetAreRefused) {
  Bench bench(GetParam());
  const Attention a(
      bench, DType::f32,
      {.batch = 2, .sq = 3, .sk = 3, .heads = 2, .groups = 1, .width = 4, .window = 2, .sinks = true});
  AttentionArgs half = a.args(), longer = a.args(), many = a.args();
  half.end_key = {};
  longer.first_key = longer.end_key = bench.empty(DType::i32, {2, 4});
  many.sinks = bench.empty(DType::f32, {3});
  for (const AttentionArgs& args : {half, longer, many})
    EXPECT_THROW(bench.ops->attention(args, bench.stream()), Error);
  const Tensor dq = bench.empty(DType::f32, a.c.q_shape()), dk = bench.empty(DType::f32, a.c.k_shape()),
               dv = bench.empty(DType::f32, a.c.k_shape());
  AttentionBackwardArgs without = a.backward_args(dq, dk, dv, false, bench.empty(DType::f32, {2}));
  without.sinks = {};
  EXPECT_THROW(bench.ops->attention_backward(without, bench.stream()), Error);
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionMask, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
