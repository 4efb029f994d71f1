// The operations of products in FP8 against the reference file, and on sizes and values at the edges.
#include "base/fp8.h"
#include "ops/fp8.h"
#include "ops/kernel_testing.h"
#include "support/tensor_file.h"

namespace gangway {
namespace {

using namespace ops_testing;

const test::TensorFile& reference() {
  static const test::TensorFile file("fp8/reference");
  return file;
}

Tensor tensor_of(Bench& bench, const std::string& name, DType dtype = DType::f32) {
  const auto& entry = reference().at(name);
  return tensor(bench, dtype, {entry.dims[0], entry.dims[1]}, entry.values);
}

Tensor codes_of(Bench& bench, const std::string& name, DType dtype) {
  const auto& entry = reference().at(name);
  Tensor t = bench.empty(dtype, {entry.dims[0], entry.dims[1]});
  HostMemory memory(t);
  for (size_t i = 0; i < entry.values.size(); ++i)
    memory.data<uint8_t>()[i] = static_cast<uint8_t>(entry.values[i]);
  memory.write();
  return t;
}

Tensor scales_of(Bench& bench, const std::string& name) {
  const std::vector<double>& from = reference().values(name);
  return tensor(bench, DType::f32, {static_cast<int64_t>(from.size())}, from);
}

std::vector<double> bytes(const Tensor& codes) {
  const std::vector<uint8_t> all = test::copy_out<uint8_t>(codes);
  return {all.begin(), all.end()};
}

bool on_gpu() { return test_device() == "cuda"; }

struct Quantized {
  Tensor scale, codes, transposed;
};

Quantized quantize(Bench& bench, const Tensor& x, Fp8Scale of, DType dtype = DType::f8_e4m3) {
  const int64_t scales = of == Fp8Scale::tensor ? 1 : of == Fp8Scale::row ? x.dim(0) : x.dim(1);
  const Quantized q = {bench.empty(DType::f32, {scales}), bench.empty(dtype, {x.dim(0), x.dim(1)}),
                       bench.empty(dtype, {x.dim(1), x.dim(0)})};
  Fp8Ops& ops = fp8_ops(*bench.ops);
  ops.fp8_scale({.x = x, .scale = q.scale, .codes = dtype, .of = of}, bench.stream());
  ops.fp8_codes({.x = x, .scale = q.scale, .of = of, .codes = q.codes, .transposed = q.transposed},
                bench.stream());
  return q;
}

void multiply(Bench& bench, const Tensor& a, const Tensor& a_scale, const Tensor& b, const Tensor& b_scale,
              const Tensor& c, bool accumulate = false) {
  const DType wide = accumulator_of(c.dtype());
  fp8_ops(*bench.ops)
      .fp8_gemm({.a = a,
                 .b = b,
                 .a_scale = a_scale,
                 .b_scale = b_scale,
                 .c = c,
                 .accumulate = accumulate,
                 .a_values = bench.empty(wide, a.shape()),
                 .b_values = bench.empty(wide, b.shape())},
                bench.stream());
}

template <typename Format>
void expect_casts(const std::string& format, DType dtype) {
  Bench bench;
  const std::vector<double>& from = reference().values("cast." + format + ".values");
  const auto count = static_cast<int64_t>(from.size());
  const Tensor x = tensor(bench, DType::f32, {1, count}, from), codes = bench.empty(dtype, {1, count});
  const Tensor one = tensor(bench, DType::f32, {1}, {1});
  fp8_ops(*bench.ops).fp8_codes({.x = x, .scale = one, .codes = codes}, bench.stream());
  EXPECT_EQ(bytes(codes), reference().values("cast." + format + ".codes"));
  const std::vector<double>& all = reference().values("decode." + format);
  for (size_t code = 0; code < all.size(); ++code) {
    const float got = from_fp8<Format>(static_cast<uint8_t>(code));
    EXPECT_TRUE(std::isnan(all[code]) ? std::isnan(got) : all[code] == static_cast<double>(got)) << code;
  }
}

TEST(Fp8Codes, RoundAndDecodeAsTheReference) {
  expect_casts<E4m3>("e4m3fn", DType::f8_e4m3);
  expect_casts<E5m2>("e5m2", DType::f8_e5m2);
}

struct Case {
  const char *x, *name;
  Fp8Scale of;
  bool transposed;
  DType dtype = DType::f8_e4m3;
};

TEST(Fp8Codes, ScalesAndCodesAreThoseOfTheReference) {
  for (const DType stored : {DType::f32, DType::f64})
    for (const Case& c :
         {Case{"x", "tensor.x", Fp8Scale::tensor, false}, Case{"w", "tensor.w", Fp8Scale::tensor, false},
          Case{"x", "row.x", Fp8Scale::row, false}, Case{"w", "row.w", Fp8Scale::row, false},
          Case{"grad_y", "grad_y", Fp8Scale::tensor, false, DType::f8_e5m2},
          Case{"grad_y", "row_again.grad_y", Fp8Scale::row, false},
          Case{"grad_y", "row_again.grad_yT", Fp8Scale::column, true},
          Case{"x", "row_again.xT", Fp8Scale::column, true},
          Case{"w", "row_again.wT", Fp8Scale::column, true}}) {
      Bench bench;
      const Quantized q = quantize(bench, tensor_of(bench, c.x, stored), c.of, c.dtype);
      EXPECT_EQ(values(q.scale), reference().values(std::string(c.name) + "_scale")) << c.name;
      EXPECT_EQ(bytes(c.transposed ? q.transposed : q.codes),
                reference().values(std::string(c.name) + "_codes"))
          << c.name;
    }
}

// Returns the rows with rows of zeros behind them, so that there is a multiple of 16: on a GPU cuBLASLt takes
// no other number of columns of a product.
Tensor padded(Bench& bench, const Tensor& rows) {
  const int64_t extra = on_gpu() ? (16 - rows.dim(0) % 16) % 16 : 0;
  if (extra == 0) return rows;
  const Shape shape = rows.rank() == 1 ? Shape{rows.dim(0) + extra} : Shape{rows.dim(0) + extra, rows.dim(1)};
  const Tensor all = bench.empty(rows.dtype(), shape);
  Device& device = bench.ops->device();
  device.zero(all.raw(), all.bytes(), bench.stream());
  device.copy(all.raw(), rows.raw(), rows.bytes(), bench.stream());
  return all;
}

TEST(Fp8Codes, ProductsAreThoseOfTheReference) {
  for (const char* kind : {"tensor", "row"}) {
    Bench bench;
    const std::string name = kind;
    const Tensor x = codes_of(bench, name + ".x_codes", DType::f8_e4m3),
                 w = padded(bench, codes_of(bench, name + ".w_codes", DType::f8_e4m3));
    const Tensor x_scale = scales_of(bench, name + ".x_scale");
    Tensor w_scale = scales_of(bench, name + ".w_scale");
    if (w_scale.count() > 1) w_scale = padded(bench, w_scale);
    for (const DType dtype : kFloats) {
      if (dtype == DType::f64 && on_gpu()) continue;  // cuBLASLt has no such product
      const Tensor whole = bench.empty(dtype, {16, w.dim(0)}), y = whole.slice(1, 0, 24);
      multiply(bench, x, x_scale, w, w_scale, whole);
      const double tolerance = dtype == DType::f64 ? 1e-13 : rounding_of(dtype) + 1e-6;
      expect_close(y, reference().values(name + ".y"), tolerance, name + " " + gangway::name(dtype));
    }
  }
}

// Sizes without elements or of one, odd ones, rows that lie apart, and more threads than rows.
TEST(Fp8Codes, EverySizeGivesTheNumbersOfTheFormula) {
  for (const int threads : on_gpu() ? std::vector{1} : std::vector{1, 3})
    for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{1, 1}, Shape{5, 9}, Shape{33, 257}})
      for (const DType dtype : kFloats)
        for (const Fp8Scale of : {Fp8Scale::tensor, Fp8Scale::row, Fp8Scale::column}) {
          Bench bench(cpu::configured_isa(), threads);
          const Tensor x = with_gap(bench, dtype, shape[0], shape[1], 3);
          assign(x, random_values(static_cast<size_t>(shape.count()), 3));
          const Quantized q = quantize(bench, x, of);
          const std::vector<double> from = values(x), codes = bytes(q.codes), other = bytes(q.transposed);
          std::vector<float> most(static_cast<size_t>(q.scale.count()), 0.0f);
          const auto at = [&](size_t i) {
            const size_t columns = static_cast<size_t>(shape[1]);
            return of == Fp8Scale::tensor ? 0 : of == Fp8Scale::row ? i / columns : i % columns;
          };
          for (size_t i = 0; i < from.size(); ++i)
            most[at(i)] = std::max(most[at(i)], std::fabs(static_cast<float>(from[i])));
          std::vector<double> scales;
          for (const float m : most) scales.push_back(static_cast<double>(std::max(m, 1e-12f) / 448));
          EXPECT_EQ(values(q.scale), scales) << shape.text();
          for (size_t i = 0; i < from.size(); ++i) {
            const uint8_t code =
                to_fp8<E4m3>(static_cast<float>(from[i]) / static_cast<float>(scales[at(i)]));
            ASSERT_EQ(codes[i], code) << shape.text() << " " << i;
            const size_t rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
            ASSERT_EQ(other[i % columns * rows + i / columns], code) << shape.text() << " " << i;
          }
        }
}

// More rows than the blocks of one launch have strips. The largest number is in the last row.
TEST(Fp8Codes, ScalesOfColumnsCountEveryRowOfALongMatrix) {
  Bench bench;
  constexpr int64_t kRows = 2 * 65'536 + 1;
  std::vector<double> from(kRows, 1.0);
  from.back() = 7;
  const Tensor x = tensor(bench, DType::bf16, {kRows, 1}, from), scale = bench.empty(DType::f32, {1});
  fp8_ops(*bench.ops)
      .fp8_scale({.x = x, .scale = scale, .codes = DType::f8_e4m3, .of = Fp8Scale::column}, bench.stream());
  EXPECT_EQ(values(scale), std::vector<double>{static_cast<double>(7.0f / 448)});
}

// A GPU takes rows of multiples of 16 codes.
TEST(Fp8Codes, ProductsOfEverySizeAdd) {
  using Sizes = std::vector<std::array<int64_t, 3>>;
  const Sizes sizes = on_gpu() ? Sizes{{0, 16, 32}, {1, 16, 16}, {3, 32, 0}, {7, 48, 304}}
                               : Sizes{{0, 3, 2}, {1, 1, 1}, {3, 5, 0}, {7, 3, 33}};
  const DType dtype = on_gpu() ? DType::f32 : DType::f64;
  const auto decoded = [](double code) {
    return static_cast<double>(from_fp8<E4m3>(static_cast<uint8_t>(code)));
  };
  for (const Fp8Scale of : {Fp8Scale::tensor, Fp8Scale::row})
    for (const auto& [m, n, k] : sizes) {
      Bench bench;
      const Quantized a = quantize(bench, random_tensor(bench, dtype, {m, k}, 1), of),
                      b = quantize(bench, random_tensor(bench, dtype, {n, k}, 2), of);
      const Tensor c = random_tensor(bench, dtype, {m, n}, 3);
      std::vector<double> want = values(c), as = values(a.scale), bs = values(b.scale);
      as.resize(static_cast<size_t>(m), as.empty() ? 0 : as[0]);
      bs.resize(static_cast<size_t>(n), bs.empty() ? 0 : bs[0]);
      const std::vector<double> a_codes = bytes(a.codes), b_codes = bytes(b.codes);
      const auto depth = static_cast<size_t>(k), columns = static_cast<size_t>(n);
      for (size_t i = 0; i < want.size(); ++i)
        for (size_t l = 0; l < depth; ++l) {
          const size_t row = i / columns, column = i % columns;
          want[i] +=
              decoded(a_codes[row * depth + l]) * as[row] * decoded(b_codes[column * depth + l]) * bs[column];
        }
      multiply(bench, a.codes, a.scale, b.codes, b.scale, c, true);
      expect_close(c, want, dtype == DType::f64 ? 1e-13 : 2e-6, "sum");
    }
}

// A NaN may have either sign.
std::vector<double> with_positive_nans(std::vector<double> codes) {
  for (double& code : codes)
    if (code == 0xff) code = 0x7f;
  return codes;
}

TEST(Fp8Codes, ANaNStaysAndAnInfinityBecomesOne) {
  Bench bench;
  const Tensor x = tensor(bench, DType::f32, {3, 2}, {NAN, 2, 1, INFINITY, -2, -0.0});
  const Quantized rows = quantize(bench, x, Fp8Scale::row);
  EXPECT_EQ(with_positive_nans(bytes(rows.codes)), (std::vector<double>{0x7f, 0x7e, 0, 0x7f, 0xfe, 0x80}));
  const Quantized all = quantize(bench, x, Fp8Scale::tensor, DType::f8_e5m2);
  EXPECT_EQ(with_positive_nans(bytes(all.codes)), (std::vector<double>{0x7f, 0, 0, 0x7f, 0x80, 0x80}));
}

// The entry of this step does not count for its own scale, and an infinity is neither recorded nor clamped.
TEST(Fp8Codes, AHistoryGivesTheScaleOfTheEarlierEntries) {
  Bench bench;
  const Tensor history = tensor(bench, DType::f32, {3}, {0, 0, 0}), scale = bench.empty(DType::f32, {1});
  const auto scale_of = [&](double most, int now, bool record = true) {
    const Tensor x = tensor(bench, DType::f32, {1, 2}, {-most, 0.5});
    fp8_ops(*bench.ops)
        .fp8_scale({.x = x, .scale = scale, .history = history, .now = now, .record = record},
                   bench.stream());
    return element(scale, 0);
  };
  EXPECT_EQ(scale_of(448, 0), 1);  // nothing is known
  EXPECT_EQ(scale_of(896, 0), 2);  // nor later in the first step
  EXPECT_EQ(scale_of(448, 0), 1);
  EXPECT_EQ(scale_of(448, 1), 2);  // the most of the first step
  EXPECT_EQ(scale_of(4480, 1), 2);
  EXPECT_EQ(scale_of(1, 2), 10);
  EXPECT_EQ(scale_of(44800, 2, false), 10);
  EXPECT_EQ(scale_of(1, 0), 10);  // not 100: that was not recorded
  EXPECT_EQ(scale_of(INFINITY, 0), INFINITY);
  EXPECT_EQ(values(history), (std::vector<double>{896, 4480, 1}));
}

}  // namespace
}  // namespace gangway
