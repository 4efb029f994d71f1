#include <cstring>

#include "ops/cpu/kernels/head_loss_kernels.h"
#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Problem {
  int64_t tokens, width, vocabulary;
  std::vector<int64_t> labels;
  double scale = 0.125;
};

struct Result {
  double loss = 0, weight = 0;
  std::vector<double> dx, dw;
};

std::vector<int64_t> random_labels(int64_t tokens, int64_t vocabulary, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int64_t> labels(static_cast<size_t>(tokens));
  for (int64_t& l : labels)
    l = engine() % 5 == 0 ? -100 : static_cast<int64_t>(engine() % static_cast<uint32_t>(vocabulary));
  return labels;
}

// By the definition, in f64, whole logits.
Result reference(const Problem& p, const std::vector<double>& x, const std::vector<double>& w) {
  Result r;
  r.dx.assign(x.size(), 0);
  r.dw.assign(w.size(), 0);
  const size_t d = static_cast<size_t>(p.width), v = static_cast<size_t>(p.vocabulary);
  std::vector<double> logits(v);
  for (size_t t = 0; t < p.labels.size(); ++t) {
    if (p.labels[t] == -100) continue;
    double most = -INFINITY, total = 0;
    for (size_t j = 0; j < v; ++j) {
      logits[j] = 0;
      for (size_t i = 0; i < d; ++i) logits[j] += x[t * d + i] * w[j * d + i];
      most = std::max(most, logits[j]);
    }
    for (size_t j = 0; j < v; ++j) total += std::exp(logits[j] - most);
    const size_t label = static_cast<size_t>(p.labels[t]);
    r.loss += std::log(total) + most - logits[label];
    r.weight += 1;
    for (size_t j = 0; j < v; ++j) {
      const double g = (std::exp(logits[j] - most) / total - (j == label ? 1 : 0)) * p.scale;
      for (size_t i = 0; i < d; ++i) {
        r.dx[t * d + i] += g * w[j * d + i];
        r.dw[j * d + i] += g * x[t * d + i];
      }
    }
  }
  return r;
}

struct Tensors {
  Tensors(Bench& bench, const Problem& p, DType dtype, double deviation = 1)
      : x(random_tensor(bench, dtype, {p.tokens, p.width}, 1, deviation)),
        w(random_tensor(bench, dtype, {p.vocabulary, p.width}, 2)),
        labels(ids_tensor(bench, p.labels)),
        loss(tensor(bench, DType::f64, {1}, {0})),
        weight(tensor(bench, DType::f64, {1}, {0})),
        scale(p.scale),
        dx(bench.empty(dtype, {p.tokens, p.width})),
        dw(bench.empty(dtype == DType::f64 ? DType::f64 : DType::f32, {p.vocabulary, p.width})) {
    assign(dx, std::vector<double>(static_cast<size_t>(dx.count()), 7));
    assign(dw, std::vector<double>(static_cast<size_t>(dw.count()), 7));
  }
  HeadLossArgs args(bool gradients = true, bool accumulate = false) const {
    HeadLossArgs a{.x = x, .w = w, .labels = labels, .loss = loss, .weight = weight, .dx = {}, .dw = {}};
    a.scale = scale;
    if (gradients) a.dx = dx, a.dw = dw;
    a.dw_accumulate = accumulate;
    return a;
  }
  Tensor x, w, labels, loss, weight;
  double scale;
  Tensor dx, dw;
};

TEST(HeadLoss, LossAndGradientsAgreeWithTheDefinition) {
  for (cpu::Isa isa : available_isas())
    for (int threads : {1, 2, 3})
      for (DType dtype : kFloats)
        for (int64_t vocabulary : {1, 2, 37, 2050, 2052}) {
          Bench bench(isa, threads);
          const Problem p{67, 19, vocabulary, random_labels(67, vocabulary, 5)};
          const Tensors t(bench, p, dtype, 0.5);
          bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
          const Result want = reference(p, values(t.x), values(t.w));
          const std::string what = label(isa, dtype) + " V=" + std::to_string(vocabulary);
          // With one word of vocabulary loss and gradients are 0: the floor is the scale. In 16 bits the
          // probabilities are rounded before they are multiplied, and dx again; products of both signs may
          // add up to less than they are.
          const double tolerance = dtype == DType::f64   ? 1e-13
                                   : dtype == DType::f32 ? 4e-6
                                                         : 3 * rounding_of(dtype);
          expect_close(values(t.loss), {want.loss}, std::min(tolerance, 1e-5), what + " loss", 0.1);
          EXPECT_EQ(element(t.weight, 0), want.weight) << what;
          expect_close(values(t.dx), want.dx, tolerance, what + " dx", 0.01);
          expect_close(values(t.dw), want.dw, tolerance, what + " dw", 0.01);
          EXPECT_EQ(bench.temporaries.used_bytes(), 0u);
        }
}

TEST(HeadLoss, GradientsAgreeWithFiniteDifferences) {
  const Problem problems[] = {{7, 5, 11, {3, 10, -100, 0, 3, -100, 7}},
                              {13, 17, 33, random_labels(13, 33, 6)},
                              {1, 5, 11, {10}},
                              {1, 5, 11, {-100}},
                              {7, 1, 3, {0, 1, 2, -100, 2, 1, 0}},
                              {3, 5, 1, {0, -100, 0}},
                              {1, 1, 1, {0}},
                              {1, 1, 2, {1}}};
  for (cpu::Isa isa : available_isas())
    for (const Problem& p : problems) {
      Bench bench(isa);
      const Tensors t(bench, p, DType::f64);
      bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
      const auto loss_at = [&](const Tensor& in, int64_t i, double value) {
        const double kept = element(in, i);
        set_element(in, i, value);
        set_element(t.loss, 0, 0);
        bench.ops->head_loss(t.args(false), bench.temporaries, bench.stream());
        set_element(in, i, kept);
        return element(t.loss, 0);
      };
      const auto compare = [&](const Tensor& in, const Tensor& gradient, const char* what) {
        std::vector<double> slopes;
        constexpr double h = 1e-4;
        for (int64_t i = 0; i < in.count(); ++i) {
          const double at = element(in, i);
          // Fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h.
          slopes.push_back((8 * (loss_at(in, i, at + h) - loss_at(in, i, at - h)) -
                            (loss_at(in, i, at + 2 * h) - loss_at(in, i, at - 2 * h))) /
                           (12 * h) * p.scale);
        }
        // With one word of vocabulary gradients are 0: the floor is less than the scale.
        expect_close(values(gradient), slopes, 1e-9, text(what, " ", cpu::name(isa), " V=", p.vocabulary),
                     0.01);
      };
      compare(t.x, t.dx, "dx");
      compare(t.w, t.dw, "dw");
    }
}

TEST(HeadLoss, ChunkBoundariesDoNotShow) {
  // At this vocabulary a chunk has 64 rows of f32: one, all but one, whole and several chunks.
  const int64_t vocabulary = 33000;
  // A GPU's product adds a row's terms one after the other, the CPU's in blocks: the rounding of a chain
  // grows with the root of its length.
  const double limit = test::on_cpu() ? 2e-5 : 2 * std::sqrt(vocabulary) * 0x1p-23;
  for (int64_t tokens : {1, 63, 64, 65, 130}) {
    Bench bench(cpu::configured_isa(), 2);
    const Problem p{tokens, 3, vocabulary, random_labels(tokens, vocabulary, 9)};
    const Tensors t(bench, p, DType::f32);
    bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
    const Result want = reference(p, values(t.x), values(t.w));
    expect_close(values(t.loss), {want.loss}, 2e-6, "loss", 0.1);
    expect_close(values(t.dx), want.dx, limit, "dx", 0.01);
    expect_close(values(t.dw), want.dw, 2e-5, "dw", 0.01);
  }
}

TEST(HeadLoss, LossIsThePlainSumWhateverTheScaleOfGradients) {
  for (DType dtype : kFloats) {
    Bench bench;
    Problem p{33, 7, 40, random_labels(33, 40, 2)};
    std::vector<double> losses;
    for (const double scale : {0.0, 1.0, 0.3}) {
      p.scale = scale;
      const Tensors t(bench, p, dtype);
      bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
      losses.push_back(element(t.loss, 0));
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(losses[0], losses[2]);
  }
}

TEST(HeadLoss, ALabelOutsideTheVocabularyGivesNan) {
  for (cpu::Isa isa : available_isas())
    for (DType dtype : kFloats)
      for (const int64_t outside : {int64_t{-1}, int64_t{5}, INT64_MAX}) {
        Bench bench(isa);
        const Problem p{3, 2, 5, {1, outside, 4}};
        const Tensors t(bench, p, dtype);
        bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
        EXPECT_TRUE(std::isnan(element(t.loss, 0)));
        EXPECT_TRUE(std::isnan(element(t.dx, 2)));
        EXPECT_TRUE(std::isfinite(element(t.dx, 0)));
        EXPECT_TRUE(std::isnan(element(t.dw, 0)));
      }
}

TEST(HeadLoss, LossAddsAndWeightGradientsAddWhenAsked) {
  Bench bench;
  const Problem p{9, 4, 13, random_labels(9, 13, 3)};
  const Tensors t(bench, p, DType::f64);
  bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
  const std::vector<double> dw = values(t.dw), dx = values(t.dx);
  const double loss = element(t.loss, 0);
  bench.ops->head_loss(t.args(true, true), bench.temporaries, bench.stream());
  EXPECT_NEAR(element(t.loss, 0), 2 * loss, 1e-13);
  EXPECT_EQ(values(t.dx), dx);
  std::vector<double> twice = dw;
  for (double& g : twice) g *= 2;
  expect_close(t.dw, twice, 1e-14, "dw");
}

TEST(HeadLoss, EvaluationGivesTheLossOfTraining) {
  for (cpu::Isa isa : available_isas())
    for (DType dtype : kFloats) {
      Bench bench(isa, 2);
      const Problem p{50, 8, 301, random_labels(50, 301, 4)};
      const Tensors t(bench, p, dtype);
      bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
      const double loss = element(t.loss, 0);
      set_element(t.loss, 0, 0);
      bench.ops->head_loss(t.args(false), bench.temporaries, bench.stream());
      EXPECT_EQ(element(t.loss, 0), loss) << label(isa, dtype);
    }
}

TEST(HeadLoss, OneGradientAloneIsThatOfBoth) {
  Bench bench;
  const Problem p{20, 6, 40, random_labels(20, 40, 8)};
  const Tensors t(bench, p, DType::f32);
  bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
  const std::vector<double> dx = values(t.dx), dw = values(t.dw);
  HeadLossArgs only_dx = t.args(), only_dw = t.args();
  only_dx.dw = Tensor();
  only_dw.dx = Tensor();
  assign(t.dx, std::vector<double>(dx.size(), 5));
  assign(t.dw, std::vector<double>(dw.size(), 5));
  bench.ops->head_loss(only_dx, bench.temporaries, bench.stream());
  EXPECT_EQ(values(t.dx), dx);
  EXPECT_EQ(values(t.dw), std::vector<double>(dw.size(), 5));
  bench.ops->head_loss(only_dw, bench.temporaries, bench.stream());
  EXPECT_EQ(values(t.dw), dw);
}

TEST(HeadLoss, AllIgnoredGivesZeroGradients) {
  for (int64_t tokens : {0, 1, 40}) {
    Bench bench;
    const Problem p{tokens, 6, 17, std::vector<int64_t>(static_cast<size_t>(tokens), -100)};
    const Tensors t(bench, p, DType::f32);
    bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
    EXPECT_EQ(element(t.loss, 0), 0);
    EXPECT_EQ(values(t.dx), std::vector<double>(static_cast<size_t>(tokens * 6), 0));
    EXPECT_EQ(values(t.dw), std::vector<double>(17 * 6, 0));
  }
}

TEST(HeadLoss, AnIgnoredRowOfNanDoesNotSpread) {
  Bench bench;
  const Problem p{3, 2, 5, {1, -100, 4}};
  const Tensors t(bench, p, DType::f32);
  set_element(t.x, 2, INFINITY);
  bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
  EXPECT_TRUE(std::isfinite(element(t.loss, 0)));
  EXPECT_EQ(element(t.dx, 2), 0);
}

// The path of processors that multiply bf16, whatever this one is.
TEST(HeadLossKernels, Bf16GradientIsTheRoundedOneAtTheFrontOfTheRow) {
  for (cpu::Isa isa : available_isas()) {
    const cpu::HeadLossKernels& kernels = cpu::choose(
        isa, cpu::portable::head_loss_kernels, cpu::avx2::head_loss_kernels, cpu::avx512::head_loss_kernels);
    for (const auto& [vocabulary, cap] :
         {std::pair<int64_t, double>{1, 0}, {2, 0}, {15, 0}, {16, 3}, {17, 0}, {1023, 3}, {4099, 0}}) {
      const std::vector<double> logits = random_values(static_cast<size_t>(vocabulary), 3, 2);
      std::vector<float> same(logits.begin(), logits.end()), narrow = same;
      const cpu::RowTerms terms{.scale = 0.5, .cap = cap};
      const double loss =
          kernels.row_f32(same.data(), vocabulary, vocabulary / 2, terms, cpu::LossGradient::same).loss;
      EXPECT_EQ(
          kernels.row_f32(narrow.data(), vocabulary, vocabulary / 2, terms, cpu::LossGradient::bf16).loss,
          loss);
      std::vector<uint16_t> bits(static_cast<size_t>(vocabulary));
      std::memcpy(bits.data(), narrow.data(), bits.size() * 2);
      for (size_t i = 0; i < bits.size(); ++i)
        ASSERT_EQ(bits[i], to_bf16(same[i]).bits) << cpu::name(isa) << " " << vocabulary << " at " << i;
    }
  }
}

TEST(HeadLoss, LargeLogitsStayFinite) {
  for (cpu::Isa isa : available_isas()) {
    Bench bench(isa);
    const Problem p{4, 3, 50, {1, 2, 3, 49}, 1.0};
    const Tensors t(bench, p, DType::f32, 1000);
    bench.ops->head_loss(t.args(), bench.temporaries, bench.stream());
    const Result want = reference(p, values(t.x), values(t.w));
    expect_close(values(t.loss), {want.loss}, 1e-6, cpu::name(isa));
    expect_close(values(t.dw), want.dw, 1e-3, cpu::name(isa));
  }
}

}  // namespace
}  // namespace gangway
