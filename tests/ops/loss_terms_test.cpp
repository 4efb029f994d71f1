// What a loss has besides cross-entropy (LossTerms), over a whole vocabulary and over parts, against the
// formulas in f64.
#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Terms {
  const char* name;
  double cap = 0, label_smoothing = 0, z_loss = 0;
  bool weights = false;
};
const Terms kTerms[] = {{"cap", 3},
                        {"weights", 0, 0, 0, true},
                        {"label smoothing", 0, 0.1},
                        {"z-loss", 0, 0, 0.01},
                        {"all", 2.5, 0.2, 0.03, true}};

std::vector<int64_t> labels_of(int64_t tokens, int64_t vocabulary) {
  std::vector<int64_t> labels;
  for (int64_t t = 0; t < tokens; ++t) labels.push_back(t % 5 == 3 ? -100 : t * 11 % vocabulary);
  return labels;
}

// Negative, zero and fractional weights.
std::vector<double> weights_of(const Terms& terms, size_t tokens) {
  std::vector<double> weights(tokens, 1);
  for (size_t t = 0; t < tokens && terms.weights; ++t) weights[t] = 0.25 * static_cast<double>(t % 7) - 0.5;
  return weights;
}

struct Row {
  double loss = 0, log_prob = 0;
  std::vector<double> gradient;  // of the logits
};

double capped(const Terms& terms, double x) {
  return terms.cap > 0 ? terms.cap * std::tanh(x / terms.cap) : x;
}

// The loss of one row by the formula of ops.h.
Row row_of(const Terms& terms, const double* logits, size_t vocabulary, size_t label, double weight) {
  const auto V = static_cast<double>(vocabulary);
  double sum = 0, mean = 0;
  std::vector<double> c(vocabulary);
  for (size_t j = 0; j < vocabulary; ++j) {
    c[j] = capped(terms, logits[j]);
    sum += std::exp(c[j]);
    mean += c[j] / V;
  }
  Row row;
  const double lse = std::log(sum), s = terms.label_smoothing, z = terms.z_loss;
  row.log_prob = c[label] - lse;
  row.loss = weight * (-(1 - s) * row.log_prob + s * (lse - mean) + z * lse * lse);
  for (size_t j = 0; j < vocabulary; ++j) {
    const double p = std::exp(c[j]) / sum, target = (j == label ? 1 - s : 0) + s / V;
    const double ratio = terms.cap > 0 ? c[j] / terms.cap : 0;
    row.gradient.push_back(weight * (p + 2 * z * lse * p - target) * (1 - ratio * ratio));
  }
  return row;
}

struct Whole {
  double loss = 0, weight = 0;
  std::vector<double> log_probs, gradient;  // of all rows
};
Whole whole_of(const Terms& terms, const std::vector<double>& logits, int64_t vocabulary,
               const std::vector<int64_t>& labels, double scale) {
  Whole whole;
  const auto V = static_cast<size_t>(vocabulary);
  const std::vector<double> weights = weights_of(terms, labels.size());
  for (size_t t = 0; t < labels.size(); ++t) {
    Row row{0, 0, std::vector<double>(V, 0)};
    if (labels[t] != -100) {
      row = row_of(terms, logits.data() + t * V, V, static_cast<size_t>(labels[t]), weights[t]);
      whole.weight += weights[t];
    }
    whole.loss += row.loss;
    whole.log_probs.push_back(row.log_prob);
    for (const double g : row.gradient) whole.gradient.push_back(scale * g);
  }
  return whole;
}

LossTerms op_terms(Bench& bench, const Terms& terms, int64_t tokens, DType wide) {
  LossTerms all{
      .cap = terms.cap,
      .weights = {},
      .label_smoothing = terms.label_smoothing,
      .z_loss = terms.z_loss,
      .log_probs = tensor(bench, wide, {tokens}, std::vector<double>(static_cast<size_t>(tokens), 7))};
  if (terms.weights)
    all.weights = tensor(bench, wide, {tokens}, weights_of(terms, static_cast<size_t>(tokens)));
  return all;
}

class LossTermsTest : public EachIsa {};

TEST_P(LossTermsTest, TheFormulaOfTheGradientAgreesWithFiniteDifferences) {
  for (const Terms& terms : kTerms) {
    const std::vector<double> logits = random_values(9, 3, 2);
    const auto loss = [&](const std::vector<double>& x) { return row_of(terms, x.data(), 9, 4, -0.7).loss; };
    expect_close(row_of(terms, logits.data(), 9, 4, -0.7).gradient, numeric_gradient(logits, loss), 1e-9,
                 terms.name, 0.1);
  }
}

// With a weight of the identity the logits are x.
TEST_P(LossTermsTest, LossGradientsAndLogProbabilitiesOfAHeadAgreeWithTheFormula) {
  for (const Terms& terms : kTerms)
    for (const DType dtype : kFloats)
      for (const int64_t vocabulary : {1, 2, 37})
        for (const int64_t tokens : {0, 1, 23}) {
          Bench bench(GetParam(), 2);
          const DType wide = accumulator_of(dtype);
          const std::vector<int64_t> labels = labels_of(tokens, vocabulary);
          std::vector<double> identity;
          for (int64_t i = 0; i < vocabulary * vocabulary; ++i)
            identity.push_back(i % (vocabulary + 1) == 0 ? 1 : 0);
          const Tensor x = random_tensor(bench, dtype, {tokens, vocabulary}, 3, 4),
                       w = tensor(bench, dtype, {vocabulary, vocabulary}, identity);
          const Tensor loss = tensor(bench, DType::f64, {1}, {0}),
                       weight = tensor(bench, DType::f64, {1}, {0});
          HeadLossArgs args{.x = x,
                            .w = w,
                            .labels = ids_tensor(bench, labels),
                            .loss = loss,
                            .weight = weight,
                            .dx = bench.empty(dtype, x.shape()),
                            .dw = bench.empty(wide, w.shape()),
                            .scale = 0.125,
                            .dw_accumulate = false,
                            .terms = op_terms(bench, terms, tokens, wide)};
          bench.ops->head_loss(args, bench.temporaries, bench.stream());
          const Whole want = whole_of(terms, values(x), vocabulary, labels, 0.125);
          const std::string what = text(terms.name, " ", name(dtype), " V=", vocabulary, " T=", tokens);
          const double tolerance = dtype == DType::f64 ? 1e-13 : 4e-6;
          expect_close(values(loss), {want.loss}, tolerance, what + " loss", 1);
          expect_close(values(weight), {want.weight}, tolerance, what + " weight");
          expect_close(values(args.terms.log_probs), want.log_probs, tolerance, what + " log_probs", 1);
          const double of_dx =
              dtype == DType::f64 || dtype == DType::f32 ? tolerance : 3 * rounding_of(dtype);
          expect_close(values(args.dx), want.gradient, of_dx, what + " dx", 0.05);
          // Without gradients the loss and the log-probabilities have the same bits.
          const std::vector<double> kept = values(args.terms.log_probs);
          const double kept_loss = element(loss, 0);
          args.dx = args.dw = {};
          set_element(loss, 0, 0);
          bench.ops->head_loss(args, bench.temporaries, bench.stream());
          EXPECT_EQ(element(loss, 0), kept_loss) << what;
          EXPECT_EQ(values(args.terms.log_probs), kept) << what;
        }
}

TEST_P(LossTermsTest, PartsOfAVocabularyAgreeWithTheFormula) {
  const std::vector<std::vector<int64_t>> cuts = {{0, 37}, {0, 1, 37}, {0, 18, 36, 37}};
  for (const Terms& terms : kTerms)
    for (const DType dtype : {DType::f64, DType::f32})
      for (const int64_t tokens : {0, 1, 23})
        for (const std::vector<int64_t>& bounds : cuts) {
          Bench bench(GetParam(), 2);
          const int64_t vocabulary = bounds.back(), parts = static_cast<int64_t>(bounds.size()) - 1;
          const std::vector<int64_t> labels = labels_of(tokens, vocabulary);
          const Tensor whole = random_tensor(bench, dtype, {tokens, vocabulary}, 3, 4);
          const Tensor ids = ids_tensor(bench, labels),
                       statistics = bench.empty(DType::f64, {parts, 3, tokens});
          const Tensor sums = bench.empty(DType::f64, {parts, tokens});
          std::vector<Tensor> logits;
          const auto flat = [&](const Tensor& t, int64_t p, const Shape& shape) {
            return t.slice(0, p, p + 1).reshape(shape);
          };
          for (int64_t p = 0; p < parts; ++p) {
            const auto at = static_cast<size_t>(p);
            const Tensor view = whole.slice(1, bounds[at], bounds[at + 1]);
            logits.push_back(tensor(bench, dtype, view.shape(), values(view)));
            bench.ops->loss_part({.logits = logits[at],
                                  .labels = ids,
                                  .statistics = flat(statistics, p, {3, tokens}),
                                  .first_id = bounds[at],
                                  .cap = terms.cap,
                                  .logit_sums = flat(sums, p, {tokens})},
                                 bench.stream());
          }
          std::vector<double> total(static_cast<size_t>(tokens), 0);
          for (int64_t p = 0; p < parts; ++p)
            for (size_t c = 0; c < total.size(); ++c)
              total[c] += element(sums, p * tokens + static_cast<int64_t>(c));
          const Whole want = whole_of(terms, values(whole), vocabulary, labels, 0.125);
          for (int64_t p = 0; p < parts; ++p) {
            const auto at = static_cast<size_t>(p);
            const Tensor loss = tensor(bench, DType::f64, {1}, {0}),
                         weight = tensor(bench, DType::f64, {1}, {0});
            const LossJoinArgs args{.logits = logits[at],
                                    .labels = ids,
                                    .statistics = statistics,
                                    .loss = loss,
                                    .weight = weight,
                                    .part = static_cast<int>(p),
                                    .first_id = bounds[at],
                                    .ids = vocabulary,
                                    .scale = 0.125,
                                    .terms = op_terms(bench, terms, tokens, dtype),
                                    .logit_sums = tensor(bench, DType::f64, {tokens}, total)};
            bench.ops->loss_join(args, bench.stream());
            const std::string what = text(terms.name, " ", name(dtype), " T=", tokens, " part ", p);
            const double tolerance = dtype == DType::f64 ? 1e-13 : 4e-6;
            expect_close(values(loss), {want.loss}, tolerance, what + " loss", 1);
            expect_close(values(weight), {want.weight}, tolerance, what + " weight");
            expect_close(values(args.terms.log_probs), want.log_probs, tolerance, what + " log_probs", 1);
            std::vector<double> gradient;
            for (int64_t c = 0; c < tokens; ++c)
              gradient.insert(gradient.end(), want.gradient.begin() + c * vocabulary + bounds[at],
                              want.gradient.begin() + c * vocabulary + bounds[at + 1]);
            expect_close(values(logits[at]), gradient, tolerance, what + " gradient", 0.05);
          }
        }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LossTermsTest, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
