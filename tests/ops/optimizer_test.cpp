#include "base/philox.h"
#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Types {
  DType p, g, m, v;
};

std::vector<Types> type_choices() {
  std::vector<Types> all;
  for (DType p : {DType::f32, DType::f64})
    for (DType g : kFloats)
      for (DType m : kFloats)
        for (DType v : kFloats) all.push_back({p, g, m, v});
  return all;
}

double relative(DType dtype) { return dtype == DType::f64 ? 1e-14 : std::max(1e-6, 2 * rounding_of(dtype)); }

// Beside f16 gradients an f16 copy, else a bf16 one.
DType copy_dtype(const Types& types) { return types.g == DType::f16 ? DType::f16 : DType::bf16; }

struct AdamWState {
  std::vector<double> p, m, v;
};

// One step by the published formula, in f64, from the state as stored.
void adamw_reference(AdamWState& s, const std::vector<double>& g, const AdamWArgs& args) {
  const OptimizerControl& c = args.control;
  const double step = static_cast<double>(c.step), lr = c.lr * args.lr_scale;
  for (size_t i = 0; i < s.p.size(); ++i) {
    const double x = g[i] * c.scale * c.clip;
    s.m[i] = args.beta1 * s.m[i] + (1 - args.beta1) * x;
    s.v[i] = args.beta2 * s.v[i] + (1 - args.beta2) * x * x;
    const double m = s.m[i] / (1 - std::pow(args.beta1, step)), v = s.v[i] / (1 - std::pow(args.beta2, step));
    s.p[i] -= lr * (m / (std::sqrt(v) + args.eps) + args.weight_decay * s.p[i]);
  }
}

TEST(AdamW, FollowsThePublishedFormulaInEveryDType) {
  const OptimizerControl control{.lr = 0.01, .scale = 0.5, .clip = 0.8, .step = 3};
  for (cpu::Isa isa : available_isas())
    for (int threads : {1, 2})
      for (const Types& types : type_choices())
        for (int64_t count : {0, 1, 515, 20001}) {
          if (count == 20001 && types.m != types.v) continue;
          Bench bench(isa, threads);
          AdamWArgs args;
          args.p = random_tensor(bench, types.p, {count}, 1);
          args.g = random_tensor(bench, types.g, {count}, 2);
          args.m = random_tensor(bench, types.m, {count}, 3, 0.1);
          std::vector<double> v(static_cast<size_t>(count));
          for (size_t i = 0; i < v.size(); ++i) v[i] = 0.01 + 0.001 * static_cast<double>(i % 7);
          args.v = tensor(bench, types.v, {count}, v);
          args.copy = bench.empty(copy_dtype(types), {count});
          args.control = control;
          args.lr_scale = 0.7;
          args.weight_decay = 0.1;
          AdamWState want{values(args.p), values(args.m), values(args.v)};
          adamw_reference(want, values(args.g), args);
          bench.ops->adamw(args, bench.stream());
          const std::string what = label(isa, types.p) + " g " + name(types.g) + " m " + name(types.m);
          expect_close(args.p, want.p, relative(types.p), what + " p");
          expect_close(args.m, want.m, std::max(relative(types.p), relative(types.m)), what + " m");
          expect_close(args.v, want.v, std::max(relative(types.p), relative(types.v)), what + " v");
          const std::vector<double> p = values(args.p), copy = values(args.copy);
          for (size_t i = 0; i < p.size(); ++i)
            ASSERT_EQ(copy[i], rounded(args.copy.dtype(), p[i])) << what << " copy " << i;
        }
}

TEST(AdamW, FiveStepsFromZeroMomentsAgreeInF64) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa);
    const OptimizerControl control{.lr = 0.1};
    AdamWArgs args;
    args.p = random_tensor(bench, DType::f64, {37}, 1);
    args.m = tensor(bench, DType::f64, {37}, std::vector<double>(37, 0));
    args.v = tensor(bench, DType::f64, {37}, std::vector<double>(37, 0));
    args.control = control;
    AdamWState want{values(args.p), values(args.m), values(args.v)};
    for (int64_t step = 1; step <= 5; ++step) {
      args.control.step = step;
      args.g = random_tensor(bench, DType::f64, {37}, static_cast<uint32_t>(10 + step));
      adamw_reference(want, values(args.g), args);
      bench.ops->adamw(args, bench.stream());
    }
    expect_close(args.p, want.p, 1e-13, cpu::name(isa));
  }
}

TEST(AdamW, NothingIsWrittenOutsideTheShard) {
  for (cpu::Isa isa : available_isas())
    for (DType moments : {DType::f32, DType::bf16, DType::f16}) {
      Bench bench(isa, 2);
      const OptimizerControl control{.lr = 0.1, .step = 1};
      const auto guarded = [&](DType dtype) {
        const Tensor t = bench.empty(dtype, {20});
        assign(t, std::vector<double>(20, 3));
        return t;
      };
      const Tensor p = guarded(DType::f32), m = guarded(moments), v = guarded(moments),
                   copy = guarded(moments == DType::f16 ? DType::f16 : DType::bf16);
      AdamWArgs args;
      args.p = p.slice(0, 3, 16), args.m = m.slice(0, 3, 16), args.v = v.slice(0, 3, 16);
      args.copy = copy.slice(0, 3, 16);
      args.g = random_tensor(bench, DType::f32, {13}, 1);
      args.control = control;
      bench.ops->adamw(args, bench.stream());
      for (const Tensor& t : {p, m, v, copy})
        for (int64_t i : {0, 1, 2, 16, 17, 19}) EXPECT_EQ(element(t, i), 3);
    }
}

// An f32 rounded to bf16 by 16 random bits, by the definition: up with the probability of the part that is
// lost.
double rounded_at_random(float x, uint32_t random) {
  const double low = to_f32(bf16_t{static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)});
  const double high = to_f32(bf16_t{static_cast<uint16_t>((std::bit_cast<uint32_t>(x) >> 16) + 1)});
  return (x - low) / (high - low) * 65536 + random >= 65536 ? high : low;
}

// The counter of an element is its index in the whole tensor: 3 + row * 10 + column, in rows of 7.
TEST(AdamW, MomentsInBf16AreRoundedByTheWordsOfTheirPlace) {
  for (cpu::Isa isa : available_isas())
    for (const int64_t count : {1, 5, 515, 2001}) {
      Bench bench(isa, 2);
      AdamWArgs args;
      args.p = random_tensor(bench, DType::f32, {count}, 1);
      args.g = random_tensor(bench, DType::f32, {count}, 2);
      const std::vector<double> zeros(static_cast<size_t>(count), 0);
      args.m = tensor(bench, DType::bf16, {count}, zeros);
      args.v = tensor(bench, DType::bf16, {count}, zeros);
      args.beta1 = 0.5, args.beta2 = 0.75;  // so that products are exact but for the square
      args.control.step = 1;
      args.rounding = {.key = 77, .first = 3, .columns = 7, .stride = 10};
      bench.ops->adamw(args, bench.stream());
      const std::vector<double> g = values(args.g), m = values(args.m), v = values(args.v);
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i), place = static_cast<size_t>(3 + i / 7 * 10 + i % 7);
        const uint32_t word = philox(77, place >> 2)[place & 3];
        const auto x = static_cast<float>(g[at]);
        ASSERT_EQ(m[at], rounded_at_random(x * 0.5f, word & 0xffff)) << cpu::name(isa) << " " << i;
        ASSERT_EQ(v[at], rounded_at_random(x * x * 0.25f, word >> 16)) << cpu::name(isa) << " " << i;
      }
    }
}

// By rounding to the nearest the average of squares stood still at 0.25 of 0.865, and never fell again.
TEST(AdamW, AnAverageInBf16WithADecayNearOneFollowsTheOneInF32) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa, 2);
    AdamWArgs args;
    const int64_t count = 512;
    args.p = random_tensor(bench, DType::f32, {count}, 1);
    args.g = bench.empty(DType::f32, {count});
    args.m = tensor(bench, DType::bf16, {count}, std::vector<double>(static_cast<size_t>(count), 0));
    args.v = tensor(bench, DType::bf16, {count}, std::vector<double>(static_cast<size_t>(count), 0));
    double want = 0;
    for (int64_t step = 1; step <= 3000; ++step) {
      const double g = step <= 1500 ? 1 : 0.1;
      if (step == 1 || step == 1501) assign(args.g, std::vector<double>(static_cast<size_t>(count), g));
      args.control.step = step;
      args.rounding.key = static_cast<uint64_t>(step);
      bench.ops->adamw(args, bench.stream());
      want = 0.999 * want + 0.001 * g * g;
      if (step % 500 != 0) continue;
      double mean = 0;
      for (const double v : values(args.v)) mean += v / static_cast<double>(count);
      EXPECT_NEAR(mean / want, 1, 0.01) << cpu::name(isa) << " step " << step;
    }
  }
}

TEST(AdamW, MomentsInBf16KeepInfinityAndNan) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa);
    AdamWArgs args;
    args.p = tensor(bench, DType::f32, {3}, {0, 0, 0});
    args.g = tensor(bench, DType::f32, {3}, {INFINITY, -INFINITY, std::nan("")});
    args.m = tensor(bench, DType::bf16, {3}, {0, 0, 0});
    args.v = tensor(bench, DType::bf16, {3}, {0, 0, 0});
    args.control.step = 1;
    bench.ops->adamw(args, bench.stream());
    EXPECT_EQ(element(args.m, 0), INFINITY);
    EXPECT_EQ(element(args.m, 1), -INFINITY);
    EXPECT_EQ(element(args.v, 1), INFINITY);
    EXPECT_TRUE(std::isnan(element(args.m, 2)) && std::isnan(element(args.v, 2)));
  }
}

TEST(Lion, FollowsThePublishedFormulaInEveryDType) {
  for (cpu::Isa isa : available_isas())
    for (const Types& types : type_choices())
      for (int64_t count : {0, 1, 515, 9001}) {
        if (types.v != DType::f32) continue;
        Bench bench(isa, 2);
        LionArgs args;
        args.p = random_tensor(bench, types.p, {count}, 1);
        args.g = random_tensor(bench, types.g, {count}, 2);
        args.m = random_tensor(bench, types.m, {count}, 3);
        args.copy = bench.empty(copy_dtype(types), {count});
        args.control = {.lr = 0.01, .scale = 0.5, .clip = 0.8, .step = 3};
        args.lr_scale = 0.7;
        args.weight_decay = 0.1;
        const std::vector<double> g = values(args.g);
        std::vector<double> p = values(args.p), m = values(args.m);
        for (size_t i = 0; i < p.size(); ++i) {
          const double x = g[i] * 0.4, direction = 0.9 * m[i] + 0.1 * x;
          ASSERT_GT(std::abs(direction), 1e-6);  // so far from zero that every dtype gives the same sign
          p[i] -= 0.007 * ((direction > 0 ? 1 : -1) + 0.1 * p[i]);
          m[i] = 0.99 * m[i] + 0.01 * x;
        }
        bench.ops->lion(args, bench.stream());
        const std::string what = label(isa, types.p) + " g " + name(types.g) + " m " + name(types.m);
        expect_close(args.p, p, relative(types.p), what + " p");
        expect_close(args.m, m, std::max(relative(types.p), relative(types.m)), what + " m");
        const std::vector<double> stepped = values(args.p), copy = values(args.copy);
        for (size_t i = 0; i < p.size(); ++i)
          ASSERT_EQ(copy[i], rounded(args.copy.dtype(), stepped[i])) << what;
      }
}

TEST(Lion, TheSignOfZeroIsZeroAndThatOfNanIsNan) {
  for (cpu::Isa isa : available_isas())
    for (DType dtype : {DType::f32, DType::f64}) {
      Bench bench(isa);
      LionArgs args;
      args.p = tensor(bench, dtype, {3}, {1, 2, 3});
      args.g = tensor(bench, dtype, {3}, {0, std::nan(""), -1});
      args.m = tensor(bench, dtype, {3}, {0, 0, 0});
      args.control = {.lr = 0.5, .step = 1};
      bench.ops->lion(args, bench.stream());
      EXPECT_EQ(element(args.p, 0), 1);
      EXPECT_TRUE(std::isnan(element(args.p, 1)));
      EXPECT_EQ(element(args.p, 2), 3.5);
    }
}

TEST(Sgd, FollowsTheFormulaWithAndWithoutMomentum) {
  for (cpu::Isa isa : available_isas())
    for (const Types& types : type_choices())
      for (double momentum : {0.0, 0.9})
        for (bool nesterov : {false, true}) {
          if (types.v != DType::f32) continue;
          Bench bench(isa, 2);
          const OptimizerControl control{.lr = 0.05, .scale = 2, .clip = 0.25};
          SgdArgs args;
          args.p = random_tensor(bench, types.p, {9001}, 1);
          args.m =
              tensor(bench, types.m, {9001}, std::vector<double>(9001, std::nan("")));  // step 1 writes it
          args.copy = bench.empty(copy_dtype(types), {9001});
          args.control = control;
          args.lr_scale = 3;
          args.momentum = momentum;
          args.weight_decay = 0.01;
          args.nesterov = nesterov;
          const std::string what = label(isa, types.p) + " g " + name(types.g) + " m " + name(types.m);
          for (int64_t step = 1; step <= 3; ++step) {
            args.control.step = step;
            args.g = random_tensor(bench, types.g, {9001}, static_cast<uint32_t>(5 + step));
            const std::vector<double> g = values(args.g), m0 = values(args.m);
            std::vector<double> p = values(args.p), m(p.size());
            for (size_t i = 0; i < p.size(); ++i) {
              double x = g[i] * 2 * 0.25 + 0.01 * p[i];
              if (momentum != 0) {
                m[i] = step == 1 ? x : momentum * m0[i] + x;
                x = nesterov ? x + momentum * m[i] : m[i];
              }
              p[i] -= 0.15 * x;
            }
            bench.ops->sgd(args, bench.stream());
            expect_close(args.p, p, relative(types.p), what + " p");
            if (momentum != 0)
              expect_close(args.m, m, std::max(relative(types.p), relative(types.m)), what + " m");
          }
          const std::vector<double> p = values(args.p), copy = values(args.copy);
          for (size_t i = 0; i < p.size(); ++i) ASSERT_EQ(copy[i], rounded(args.copy.dtype(), p[i])) << what;
        }
}

TEST(Sgd, NeedsNoMomentWithoutMomentum) {
  Bench bench;
  const OptimizerControl control{.lr = 1, .step = 1};
  SgdArgs args;
  args.p = tensor(bench, DType::f32, {2}, {1, 2});
  args.g = tensor(bench, DType::f32, {2}, {0.5, -1});
  args.control = control;
  bench.ops->sgd(args, bench.stream());
  EXPECT_EQ(values(args.p), (std::vector<double>{0.5, 3}));
}

TEST(Optimizers, ControlIsTakenAtTheCall) {
  Bench bench;
  SgdArgs args;
  args.p = tensor(bench, DType::f64, {1}, {1});
  args.g = tensor(bench, DType::f64, {1}, {1});
  args.control = {.lr = 0.25, .step = 1};
  bench.ops->sgd(args, bench.stream());
  args.control.lr = 1;
  EXPECT_EQ(element(args.p, 0), 0.75);
}

}  // namespace
}  // namespace gangway
