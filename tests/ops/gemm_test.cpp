#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  int64_t gap = 0;  // elements between rows
  std::string text() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           (transpose_a ? " T" : " N") + (transpose_b ? "T" : "N") + (bias ? " bias" : "") +
           (accumulate ? " accumulate" : "") + (gap != 0 ? " gap" : "");
  }
};

// c = op(a) op(b) + bias + c0 in f64, by the definition.
std::vector<double> reference(const GemmArgs& args, const Tensor& c0) {
  const std::vector<double> a = values(args.a), b = values(args.b), c = values(c0);
  const std::vector<double> bias = args.bias ? values(args.bias) : std::vector<double>();
  const int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  std::vector<double> out(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t x = 0; x < k; ++x) {
      const double f = a[static_cast<size_t>(args.transpose_a ? x * m + i : i * k + x)];
      for (int64_t j = 0; j < n; ++j)
        out[static_cast<size_t>(i * n + j)] +=
            f * b[static_cast<size_t>(args.transpose_b ? j * k + x : x * n + j)];
    }
  for (int64_t i = 0; i < m * n; ++i) {
    if (args.bias) out[static_cast<size_t>(i)] += bias[static_cast<size_t>(i % n)];
    if (args.accumulate) out[static_cast<size_t>(i)] += c[static_cast<size_t>(i)];
  }
  return out;
}

Tensor random_matrix(Bench& bench, DType dtype, int64_t rows, int64_t columns, int64_t gap, uint32_t seed) {
  const Tensor t = with_gap(bench, dtype, rows, columns, gap);
  assign(t, random_values(static_cast<size_t>(rows * columns), seed));
  return t;
}

void check_case(Bench& bench, const Case& x, DType dtype, DType c_dtype, const std::string& what) {
  GemmArgs args;
  args.a = random_matrix(bench, dtype, x.transpose_a ? x.k : x.m, x.transpose_a ? x.m : x.k, x.gap, 1);
  args.b = random_matrix(bench, dtype, x.transpose_b ? x.n : x.k, x.transpose_b ? x.k : x.n, 2 * x.gap, 2);
  args.c = random_matrix(bench, c_dtype, x.m, x.n, 3 * x.gap, 3);
  if (x.bias) args.bias = random_tensor(bench, dtype, {x.n}, 4);
  args.transpose_a = x.transpose_a;
  args.transpose_b = x.transpose_b;
  args.accumulate = x.accumulate;
  const std::vector<double> want = reference(args, args.c);
  // What c held must not matter: a NaN times 0 would show.
  if (!x.accumulate) assign(args.c, std::vector<double>(want.size(), std::nan("")));
  bench.ops->gemm(args, bench.stream());
  expect_close(args.c, want, c_dtype == DType::f64 ? 1e-14 : rounding_of(c_dtype) + 2e-6,
               what + " " + x.text());
}

struct Types {
  DType dtype, c_dtype;
};
const Types kTypes[] = {{DType::f64, DType::f64},  {DType::f32, DType::f32}, {DType::bf16, DType::bf16},
                        {DType::bf16, DType::f32}, {DType::f16, DType::f16}, {DType::f16, DType::f32}};

template <typename Body>
void for_each_path(const std::vector<int>& thread_counts, Body&& body) {
  for (cpu::Isa isa : available_isas())
    for (int threads : thread_counts) {
      Bench bench(isa, threads);
      for (const Types& t : kTypes)
        body(bench, t,
             label(isa, t.dtype) + " into " + name(t.c_dtype) + ", " + std::to_string(threads) + " threads");
    }
}

TEST(Gemm, EveryLayoutAgreesWithTheDefinition) {
  for_each_path({1, 2}, [](Bench& bench, Types t, const std::string& what) {
    for (int bits = 0; bits < 16; ++bits)
      for (int64_t gap : {0, 3})
        check_case(bench,
                   {33, 47, 29, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, gap},
                   t.dtype, t.c_dtype, what);
  });
}

TEST(Gemm, SizesFromOneToOddAreRight) {
  for_each_path({1, 3}, [](Bench& bench, Types t, const std::string& what) {
    for (int64_t m : {1, 2, 7, 65})
      for (int64_t n : {1, 5, 17, 130})
        for (int64_t k : {1, 3, 64, 257})
          for (int transposes = 0; transposes < 4; ++transposes)
            check_case(bench, {m, n, k, (transposes & 1) != 0, (transposes & 2) != 0, m == 7, n == 17},
                       t.dtype, t.c_dtype, what);
  });
}

// Over all block boundaries of our own product and of the slices.
TEST(Gemm, LargeProductsAreRight) {
  for_each_path({1, 2, 3}, [](Bench& bench, Types t, const std::string& what) {
    check_case(bench, {250, 530, 300, false, true, true, false}, t.dtype, t.c_dtype, what);
    check_case(bench, {1000, 40, 270, true, false, false, true, 5}, t.dtype, t.c_dtype, what);
  });
}

// The shapes that oneDNN leaves unpacked on AVX2 take another path there.
TEST(Gemm, RowsAPowerOfTwoApartAreRight) {
  for_each_path({1, 2}, [](Bench& bench, Types t, const std::string& what) {
    check_case(bench, {130, 256, 70, false, false, true, true}, t.dtype, t.c_dtype, what);
    check_case(bench, {256, 80, 70, true, false, false, true}, t.dtype, t.c_dtype, what);
  });
}

TEST(Gemm, AnEmptyReductionLeavesBiasOrC) {
  for_each_path({1}, [](Bench& bench, Types t, const std::string& what) {
    for (const int64_t n : {32, 35})
      for (int bits = 0; bits < 4; ++bits)
        check_case(bench, {5, n, 0, false, true, (bits & 1) != 0, (bits & 2) != 0}, t.dtype, t.c_dtype, what);
  });
}

TEST(Gemm, EmptyResultsAreLegal) {
  for_each_path({1, 2}, [](Bench& bench, Types t, const std::string& what) {
    check_case(bench, {0, 4, 3}, t.dtype, t.c_dtype, what);
    check_case(bench, {4, 0, 3, true, true, true}, t.dtype, t.c_dtype, what);
    check_case(bench, {0, 0, 0}, t.dtype, t.c_dtype, what);
  });
}

TEST(Gemm, GapsBetweenRowsStayUntouched) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa);
    const Tensor whole = bench.empty(DType::f32, {70, 90});
    assign(whole, std::vector<double>(70 * 90, 42.0));
    const Tensor a = random_tensor(bench, DType::f32, {70, 50}, 1),
                 b = random_tensor(bench, DType::f32, {50, 80}, 2);
    bench.ops->gemm({.a = a, .b = b, .c = whole.slice(1, 0, 80), .bias = {}}, bench.stream());
    const std::vector<double> got = values(whole);
    for (size_t i = 0; i < 70; ++i)
      for (size_t j = 80; j < 90; ++j) ASSERT_EQ(got[i * 90 + j], 42) << cpu::name(isa);
  }
}

// Sums are f32 whatever they are stored as: what overflows f16 on the way may end within it, and subnormals count.
TEST(Gemm, F16AddsUpInF32) {
  for (cpu::Isa isa : available_isas())
    for (DType c_dtype : {DType::f16, DType::f32})
      for (int64_t size : {3, 70}) {  // of our own loops and of what a vendor's product would take
        Bench bench(isa);
        std::vector<double> a(static_cast<size_t>(size * size), 0), b = a;
        for (int64_t i = 0; i < size; ++i) {
          double* row = a.data() + i * size;
          row[0] = 60000, row[1] = -60000, row[2] = 0x1p-24;
          b[static_cast<size_t>(i)] = b[static_cast<size_t>(size + i)] = 512;
          b[static_cast<size_t>(2 * size + i)] = 1024;
        }
        const Tensor c = bench.empty(c_dtype, {size, size});
        bench.ops->gemm({.a = tensor(bench, DType::f16, {size, size}, a),
                         .b = tensor(bench, DType::f16, {size, size}, b),
                         .c = c,
                         .bias = {}},
                        bench.stream());
        EXPECT_EQ(values(c), std::vector<double>(a.size(), 0x1p-14)) << label(isa, c_dtype) << " " << size;
      }
}

TEST(Gemm, TheSameCallGivesTheSameBits) {
  for_each_path({1, 2, 3}, [](Bench& bench, Types t, const std::string& what) {
    const Tensor a = random_tensor(bench, t.dtype, {200, 150}, 1),
                 b = random_tensor(bench, t.dtype, {150, 190}, 2);
    const Tensor c = bench.empty(t.c_dtype, {200, 190});
    bench.ops->gemm({.a = a, .b = b, .c = c, .bias = {}}, bench.stream());
    const std::vector<double> first = values(c);
    bench.ops->gemm({.a = a, .b = b, .c = c, .bias = {}}, bench.stream());
    EXPECT_EQ(values(c), first) << what;
  });
}

TEST(Gemm, MoreShapesThanTheCacheHoldsStayRight) {
  Bench bench;
  for (int64_t n = 1; n <= 1200; ++n) {
    const Tensor a = bench.empty(DType::f32, {100, 100}).slice(1, 0, 90),
                 b = bench.empty(DType::f32, {90, n});
    assign(a, std::vector<double>(100 * 90, 1));
    bench.ops->fill(b, 2, bench.stream());
    const Tensor c = bench.empty(DType::f32, {100, n});
    bench.ops->gemm({.a = a, .b = b, .c = c, .bias = {}}, bench.stream());
    ASSERT_EQ(element(c, c.count() - 1), 180);
    ASSERT_EQ(element(c, 0), 180);
  }
}

#ifdef __x86_64__
// Elsewhere oneDNN emulates them, where it has AVX-512, at a quarter of the speed of f32.
TEST(Gemm, OneDnnMultipliesBf16OnlyWhereTheProcessorDoes) {
  const auto ops = make_ops(make_device("cpu"));
  const bool takes_onednn = describe_paths(*ops).find("gemm bf16: oneDNN") != std::string::npos;
  EXPECT_LE(takes_onednn, __builtin_cpu_supports("avx512bf16") != 0);
}
#endif

TEST(Gemm, WrongShapesAreRefused) {
  Bench bench;
  const Tensor a = random_tensor(bench, DType::f32, {3, 4}, 1),
               b = random_tensor(bench, DType::f32, {5, 6}, 2);
  EXPECT_THROW(
      bench.ops->gemm({.a = a, .b = b, .c = bench.empty(DType::f32, {3, 6}), .bias = {}}, bench.stream()),
      Error);
  EXPECT_THROW(bench.ops->gemm(
                   {.a = a, .b = a, .c = bench.empty(DType::bf16, {3, 3}), .bias = {}, .transpose_b = true},
                   bench.stream()),
               Error);
}

}  // namespace
}  // namespace gangway
