#include "base/philox.h"
#include "ops/ops_testing.h"
#include "support/test_device.h"

namespace gangway {
namespace {

using namespace ops_testing;

// One f64 or f32 operation and the rounding of its result.
double tolerance_of_one(DType dtype) { return dtype == DType::f64 ? 1e-15 : rounding_of(dtype) + 2e-7; }

template <typename Body>
void for_each_bench(Body&& body) {
  for (cpu::Isa isa : available_isas())
    for (int threads : {1, 3}) {
      Bench bench(isa, threads);
      body(bench, std::string(cpu::name(isa)) + " ");
    }
}

TEST(Cast, RoundsToNearestBetweenAllFloats) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType from : kFloats)
      for (DType to : kFloats)
        for (int64_t count : {0, 1, 3, 17, 100003}) {
          const Tensor x = random_tensor(bench, from, {count}, 1), y = bench.empty(to, {count});
          bench.ops->cast(x, y, bench.stream());
          const std::vector<double> from_x = values(x), got = values(y);
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], rounded(to, from_x[i])) << what << name(from) << " to " << name(to);
        }
  });
}

TEST(Cast, KeepsNanAndInfinity) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType from : kFloats)
      for (DType to : kFloats) {
        const Tensor x = tensor(bench, from, {5}, {NAN, INFINITY, -INFINITY, -0.0, 1}),
                     y = bench.empty(to, {5});
        bench.ops->cast(x, y, bench.stream());
        EXPECT_TRUE(std::isnan(element(y, 0))) << what << name(from) << " to " << name(to);
        EXPECT_EQ(element(y, 1), INFINITY);
        EXPECT_EQ(element(y, 2), -INFINITY);
        EXPECT_TRUE(std::signbit(element(y, 3)));
      }
  });
}

TEST(Cast, F16OverflowsToInfinityAndKeepsSubnormals) {
  for_each_bench([](Bench& bench, const std::string& what) {
    const std::vector<double> given = {65504,   65519,   65520,   -65520,  1e30,
                                       0x1p-14, 0x1p-24, 0x3p-24, 0x1p-25, 0x1p-24 * 1.5};
    const std::vector<double> want = {65504,   65504,   INFINITY, -INFINITY, INFINITY,
                                      0x1p-14, 0x1p-24, 0x3p-24,  0,         0x1p-23};
    for (DType from : {DType::f64, DType::f32}) {
      const int64_t count = static_cast<int64_t>(given.size());
      const Tensor x = tensor(bench, from, {count}, given), y = bench.empty(DType::f16, {count}),
                   back = bench.empty(from, {count});
      bench.ops->cast(x, y, bench.stream());
      bench.ops->cast(y, back, bench.stream());
      EXPECT_EQ(values(y), want) << what << name(from);
      EXPECT_EQ(values(back), want) << what << name(from);
    }
  });
}

TEST(Cast, TakesAnyStrides) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType to : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor x = random_tensor(bench, DType::f32, {5, 4, 7}, 1);
      const Tensor views[] = {x.slice(2, 1, 6), x.transpose(0, 2), x.transpose(1, 2).slice(0, 2, 4),
                              x.slice(1, 2, 2)};
      for (const Tensor& view : views) {
        const Tensor whole = bench.empty(to, {8, 8, 8});
        const Tensor y = whole.slice(0, 0, view.dim(0)).slice(1, 1, 1 + view.dim(1)).slice(2, 0, view.dim(2));
        bench.ops->cast(view, y, bench.stream());
        const std::vector<double> from_view = values(view), got = values(y);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(got[i], rounded(to, from_view[i])) << what << name(to) << " " << i;
      }
    }
  });
}

TEST(Cast, CopiesEqualDTypesOfAnyKind) {
  Bench bench;
  const Tensor x = ids_tensor(bench, {5, -7, int64_t{1} << 62, 4}).reshape({2, 2}),
               y = bench.empty(DType::i64, {2, 2});
  bench.ops->cast(x.transpose(0, 1), y, bench.stream());
  EXPECT_EQ(HostMemory(y).data<int64_t>()[2], -7);
  EXPECT_EQ(HostMemory(y).data<int64_t>()[1], int64_t{1} << 62);
  EXPECT_THROW(bench.ops->cast(x, bench.empty(DType::f32, {2, 2}), bench.stream()), Error);
}

TEST(Fill, WritesEveryElement) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType dtype : kFloats)
      for (int64_t count : {0, 1, 33, 50001}) {
        const Tensor y = bench.empty(dtype, {count});
        bench.ops->fill(y, 0.1, bench.stream());
        EXPECT_EQ(values(y), std::vector<double>(static_cast<size_t>(count), rounded(dtype, 0.1))) << what;
      }
  });
}

TEST(Add, AddsAMultipleAcrossDTypes) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType from : kFloats)
      for (DType to : kFloats)
        for (int64_t count : {0, 1, 513, 40001}) {
          const Tensor x = random_tensor(bench, from, {count}, 1), y = random_tensor(bench, to, {count}, 2);
          std::vector<double> want = values(y);
          const std::vector<double> from_x = values(x);
          for (size_t i = 0; i < want.size(); ++i) want[i] += 0.3 * from_x[i];
          bench.ops->add(x, 0.3, y, bench.stream());
          expect_close(y, want, tolerance_of_one(to), what);
        }
  });
}

TEST(Scale, MultipliesInPlace) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType dtype : kFloats) {
      const Tensor y = random_tensor(bench, dtype, {40001}, 2);
      std::vector<double> want = values(y);
      for (double& x : want) x *= -1.75;
      bench.ops->scale(y, -1.75, bench.stream());
      expect_close(y, want, tolerance_of_one(dtype), what);
    }
  });
}

TEST(ColumnSum, AddsTheRows) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType dtype : kFloats)
      for (int64_t rows : {0, 1, 300})
        for (int64_t columns : {1, 3, 64, 389}) {
          const Tensor x = random_tensor(bench, dtype, {rows, columns}, 1);
          const Tensor y = random_tensor(bench, dtype == DType::f64 ? DType::f64 : DType::f32, {columns}, 2);
          std::vector<double> want = values(y);
          const std::vector<double> from_x = values(x);
          for (size_t i = 0; i < from_x.size(); ++i) want[i % want.size()] += from_x[i];
          bench.ops->column_sum(x, y, bench.stream());
          expect_close(y, want, dtype == DType::f64 ? 1e-14 : 1e-6, what);
        }
  });
}

TEST(NormPower, AgreesWithThePlainSum) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType dtype : kFloats)
      for (double p : {1.0, 2.0, 3.5, static_cast<double>(INFINITY)})
        for (int64_t count : {0, 1, 511, 8193, 30001}) {
          if (p == 3.5 && count > 10000) continue;
          const Tensor x = random_tensor(bench, dtype, {count}, 1),
                       out = tensor(bench, DType::f64, {1}, {0.5});
          double want = 0.5;
          for (const double element : values(x)) {
            const double a = std::fabs(element);
            want = std::isinf(p) ? std::max(want, a) : want + std::pow(a, p);
          }
          bench.ops->norm_power(x, p, out, bench.stream());
          // GPUs add a few neighbouring elements in f32, and these sums in f64.
          const bool in_f32 = !test::on_cpu() && dtype != DType::f64 && p <= 2;
          ASSERT_NEAR(element(out, 0), want, (in_f32 ? 5e-7 : 1e-12) * want) << what << p << " " << count;
        }
  });
}

// Squares of these are infinite or zero in f32.
TEST(NormPower, OfElementsFarFromOneIsAsPrecise) {
  Bench bench;
  for (DType dtype : {DType::f32, DType::bf16})
    for (double size : {1e-35, 1e-22, 1e-16, 1e16, 1e21, 1e35})
      for (double p : {1.0, 2.0})
        for (int64_t count : {1, 8, 4097}) {
          const Tensor x = random_tensor(bench, dtype, {count}, 1, size),
                       out = tensor(bench, DType::f64, {1}, {0});
          double want = 0;
          for (const double element : values(x)) want += std::pow(std::fabs(element), p);
          bench.ops->norm_power(x, p, out, bench.stream());
          ASSERT_NEAR(element(out, 0), want, 5e-7 * want) << size << " " << p << " " << count;
        }
}

TEST(NormPower, HasTheSameBitsForEveryThreadCount) {
  for (cpu::Isa isa : available_isas())
    for (DType dtype : kFloats) {
      std::vector<double> found;
      for (int threads : {1, 2, 3, 5}) {
        Bench bench(isa, threads);
        const Tensor x = random_tensor(bench, dtype, {100003}, 1), out = tensor(bench, DType::f64, {1}, {0});
        bench.ops->norm_power(x, 2, out, bench.stream());
        found.push_back(element(out, 0));
      }
      for (double f : found) EXPECT_EQ(f, found[0]);
    }
}

TEST(NormPower, ShowsNanAndInfinity) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType dtype : kFloats)
      for (double p : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)})
        for (int64_t at : {0, 700, 9000}) {
          const Tensor x = random_tensor(bench, dtype, {9001}, 1), out = tensor(bench, DType::f64, {1}, {0});
          set_element(x, at, -INFINITY);
          bench.ops->norm_power(x, p, out, bench.stream());
          EXPECT_EQ(element(out, 0), INFINITY) << what << p;
          set_element(x, (at + 4000) % 9001, NAN);
          set_element(out, 0, 0);
          bench.ops->norm_power(x, p, out, bench.stream());
          EXPECT_TRUE(std::isnan(element(out, 0))) << what << p;
        }
  });
}

uint32_t checksum_of(Bench& bench, const Tensor& x, uint32_t key = 7) {
  const Tensor sum = ids_tensor(bench, {5});
  bench.ops->checksum({.x = x, .sum = sum, .key = key}, bench.stream());
  bench.stream().synchronize();
  return static_cast<uint32_t>(HostMemory(sum).data<int64_t>()[0]);
}

TEST(Checksum, IsItsFormulaOfTheBitsWithEveryInstructionSet) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const int64_t count : {1, 15, 16, 1000, 40001}) {
        const Tensor x = random_tensor(bench, dtype, {count}, 1);
        uint32_t want = 5;
        const HostMemory host(x);
        for (uint32_t i = 0; i < x.bytes() / 4; ++i) {
          const uint32_t m = (0xfffffff0u + i) * 0x9E3779B1u;
          want += host.data<uint32_t>()[i] * ((m ^ (m >> 15)) | 1u);
        }
        EXPECT_EQ(checksum_of(bench, x, 0xfffffff0u), want) << what << " " << count;
      }
  });
}

TEST(Checksum, ChangesWithAnyBitAndWithOrder) {
  for_each_bench([](Bench& bench, const std::string& what) {
    const Tensor x = random_tensor(bench, DType::f32, {333}, 1);
    const uint32_t before = checksum_of(bench, x);
    for (size_t at = 0; at < 333; at += 83)
      for (int bit = 0; bit < 32; ++bit) {
        const auto flip = [&] {
          HostMemory host(x);
          host.data<uint32_t>()[at] ^= 1u << bit;
          host.write();
        };
        flip();
        EXPECT_NE(checksum_of(bench, x), before) << what << " " << at << " " << bit;
        flip();
      }
    HostMemory host(x);
    std::swap(host.data<uint32_t>()[3], host.data<uint32_t>()[4]);
    host.write();
    EXPECT_NE(checksum_of(bench, x), before) << what;
  });
}

TEST(FillNormal, HasTheBitsOfTheCounterFormula) {
  for_each_bench([](Bench& bench, const std::string& what) {
    for (DType dtype : kFloats)
      for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 33})
        for (int64_t count : {0, 1, 2, 5003}) {
          const Tensor y = bench.empty(dtype, {count});
          bench.ops->fill_normal(y, 77, first, 0.02, bench.stream());
          const std::vector<double> got = values(y);
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], rounded(dtype, philox_normal(77, first + i) * 0.02)) << what << name(dtype);
        }
  });
}

TEST(IdRange, FindsLowestHighestAndNumber) {
  for_each_bench([](Bench& bench, const std::string&) {
    const auto range = [&](const std::vector<int64_t>& ids) {
      const Tensor out = ids_tensor(bench, {7, 7, 7});
      bench.ops->id_range(ids_tensor(bench, ids), -100, out, bench.stream());
      return values(out);
    };
    using Found = std::vector<double>;
    EXPECT_EQ(range({}), (Found{0, -1, 0}));
    EXPECT_EQ(range({-100, -100}), (Found{0, -1, 0}));
    EXPECT_EQ(range({-100, 5, 3, -100}), (Found{3, 5, 2}));
    EXPECT_EQ(range({-1}), (Found{-1, -1, 1}));
    EXPECT_EQ(range({0, -7}), (Found{-7, 0, 2}));
    std::vector<int64_t> many(60001, 9);
    many[60000] = 11;
    many[5] = 2;
    many[30000] = -100;
    EXPECT_EQ(range(many), (Found{2, 11, 60000}));
  });
}

}  // namespace
}  // namespace gangway
