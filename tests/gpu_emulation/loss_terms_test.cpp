// The terms of losses (ops/ops.h, LossTerms) on the software GPU: of the model head, and of a vocabulary in
// parts, against the definition in f64 and its finite differences.
#include "gpu_emulation/cuda_ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;
using Values = std::vector<double>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

class LossOfTerms : public OnSoftwareGpu {};

// The loss of rows of logits by its definition, and its gradient by the raw logits.
struct Loss {
  LossTerms terms;  // without tensors
  Values weights;
  std::vector<int64_t> labels;
  int64_t ids;

  double row(const double* raw, size_t c, double* log_prob = nullptr) const {
    Values logits(raw, raw + ids);
    double total = 0, mean = 0;
    for (double& z : logits) {
      if (terms.cap > 0) z = terms.cap * std::tanh(z / terms.cap);
      total += std::exp(z);
      mean += z / static_cast<double>(ids);
    }
    const double log_total = std::log(total), s = terms.label_smoothing;
    if (log_prob != nullptr) *log_prob = logits[at(labels[c])] - log_total;
    return weights[c] * ((1 - s) * (log_total - logits[at(labels[c])]) + s * (log_total - mean) +
                         terms.z_loss * log_total * log_total);
  }
};

struct Terms {
  double cap, smoothing, z_loss;
};
constexpr Terms kTerms[] = {{0, 0, 0}, {3, 0, 0}, {0, 0.2, 0}, {0, 0, 0.1}, {2.5, 0.1, 0.03}};
const std::vector<int64_t> kLabels = {3, -100, 0, 9, 12};
const Values kWeights = {0.5, 7, -2, 0, 1.5};

std::string words_of(DType dtype, const Terms& t) {
  return text(name(dtype), ", cap ", t.cap, ", label smoothing ", t.smoothing, ", z-loss ", t.z_loss);
}

Loss loss_of(const Terms& t, int64_t ids) {
  return {{.cap = t.cap, .weights = {}, .label_smoothing = t.smoothing, .z_loss = t.z_loss, .log_probs = {}},
          kWeights,
          kLabels,
          ids};
}

// Sums and log probabilities of all rows, and the gradient of scale times the loss by raw logits.
void expect_loss(const Loss& want, const Values& raw, double scale, const Tensor& loss, const Tensor& weight,
                 const Tensor& log_probs, const Values& gradient, double near, const std::string& what) {
  double sum = 0, counted = 0;
  Values probs, all;
  for (size_t c = 0; c < want.labels.size(); ++c) {
    const Values row(raw.begin() + static_cast<long>(c) * want.ids,
                     raw.begin() + static_cast<long>(c + 1) * want.ids);
    const bool ignored = want.labels[c] == -100;
    double prob = 0;
    if (!ignored) sum += want.row(row.data(), c, &prob);
    if (!ignored) counted += want.weights[c];
    probs.push_back(prob);
    Values g = ignored ? Values(row.size(), 0)
                       : numeric_gradient(row, [&](const Values& x) { return want.row(x.data(), c); });
    for (const double x : g) all.push_back(scale * x);
  }
  expect_close(values(loss), {1 + sum}, near, "loss " + what, 1);
  expect_close(values(weight), {2 + counted}, 1e-12, "weight " + what);
  expect_close(values(log_probs), probs, near, "log_probs " + what, 1);
  if (!gradient.empty()) expect_close(gradient, all, near, "gradient " + what, 0.1);
}

TEST_F(LossOfTerms, HeadLossHasItsTerms) {
  Bench bench;
  const int64_t T = 5, D = 6;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const int64_t V : {16, 13})
      for (const Terms& terms : kTerms) {
        const DType wide = accumulator_of(dtype);
        Loss want = loss_of(terms, V);
        const Tensor x = random_tensor(bench, dtype, {T, D}, 1), w = random_tensor(bench, dtype, {V, D}, 2),
                     loss = tensor(bench, DType::f64, {1}, {1}), weight = tensor(bench, DType::f64, {1}, {2}),
                     dx = bench.empty(dtype, {T, D}), log_probs = bench.empty(wide, {T});
        LossTerms with = want.terms;
        with.weights = tensor(bench, wide, {T}, kWeights);
        with.log_probs = log_probs;
        HeadLossArgs args{.x = x,
                          .w = w,
                          .labels = ids_tensor(bench, kLabels),
                          .loss = loss,
                          .weight = weight,
                          .dx = dx,
                          .dw = {},
                          .scale = 0.25,
                          .dw_accumulate = true,
                          .ignore = -100,
                          .terms = with};
        bench.ops->head_loss(args, bench.temporaries, bench.stream());
        const Values X = values(x), W = values(w);
        Values raw(at(T * V), 0), rows_dx(at(T * D), 0);
        for (int64_t i = 0; i < T * V; ++i)
          for (int64_t d = 0; d < D; ++d) raw[at(i)] += X[at(i / V * D + d)] * W[at(i % V * D + d)];
        for (int64_t t = 0; t < T; ++t) {
          if (kLabels[at(t)] == -100) continue;
          const Values row(raw.begin() + t * V, raw.begin() + (t + 1) * V);
          const Values g = numeric_gradient(row, [&](const Values& z) { return want.row(z.data(), at(t)); });
          for (int64_t i = 0; i < V * D; ++i) rows_dx[at(t * D + i % D)] += 0.25 * g[at(i / D)] * W[at(i)];
        }
        const double near = dtype == DType::f64 ? 1e-9 : dtype == DType::f32 ? 2e-5 : 0.02;
        const std::string what = text(words_of(dtype, terms), ", ", V, " ids");
        expect_loss(want, raw, 0.25, loss, weight, log_probs, {}, near, what);
        expect_close(values(dx), rows_dx, near, "dx " + what, 0.1);
      }
}

TEST_F(LossOfTerms, JoinedPartsOfALossHaveItsTerms) {
  Bench bench;
  const int64_t C = 5, V = 13, cut = 8;
  for (const DType dtype : {DType::f64, DType::f32})
    for (const Terms& terms : kTerms) {
      const Loss want = loss_of(terms, V);
      const Values raw = values(random_tensor(bench, dtype, {C, V}, 3, 2));
      const Tensor whole = tensor(bench, dtype, {C, V}, raw), ids = ids_tensor(bench, kLabels),
                   statistics = bench.empty(DType::f64, {2, 3, C}), sums = bench.empty(DType::f64, {2, C});
      std::vector<Tensor> parts;
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, cut}, {cut, V}}) {
        const int64_t p = static_cast<int64_t>(parts.size());
        const Tensor view = whole.slice(1, first, last);
        parts.push_back(tensor(bench, dtype, view.shape(), values(view)));
        bench.ops->loss_part({parts.back(), ids, statistics.slice(0, p, p + 1).reshape({3, C}), first,
                              terms.cap, sums.slice(0, p, p + 1).reshape({C})},
                             bench.stream());
      }
      Values all_sums(at(C), 0), gradient(at(C * V));
      for (int64_t i = 0; i < 2 * C; ++i) all_sums[at(i % C)] += values(sums)[at(i)];
      const Tensor logit_sums = tensor(bench, DType::f64, {C}, all_sums);
      for (int p = 0; p < 2; ++p) {
        const Tensor loss = tensor(bench, DType::f64, {1}, {1}), weight = tensor(bench, DType::f64, {1}, {2}),
                     log_probs = bench.empty(dtype, {C});
        LossTerms with = want.terms;
        with.weights = tensor(bench, dtype, {C}, kWeights);
        with.log_probs = log_probs;
        bench.ops->loss_join({.logits = parts[at(p)],
                              .labels = ids,
                              .statistics = statistics,
                              .loss = loss,
                              .weight = weight,
                              .part = p,
                              .first_id = p == 0 ? 0 : cut,
                              .ids = V,
                              .scale = 0.25,
                              .ignore = -100,
                              .terms = with,
                              .logit_sums = logit_sums},
                             bench.stream());
        const int64_t first = p == 0 ? 0 : cut, width = p == 0 ? cut : V - cut;
        for (int64_t i = 0; i < C * width; ++i)
          gradient[at(i / width * V + first + i % width)] = values(parts[at(p)])[at(i)];
        if (p == 0) continue;
        expect_loss(want, raw, 0.25, loss, weight, log_probs, gradient, dtype == DType::f64 ? 1e-9 : 2e-5,
                    words_of(dtype, terms));
      }
    }
}

// The label's exponential is 0 in f32. Its gradient by the raw logit 0, where the cap has slope 1, is -scale.
TEST_F(LossOfTerms, ALabelFarBelowTheHighestCappedLogitKeepsItsGradient) {
  Bench bench;
  const Tensor logits = tensor(bench, DType::f32, {1, 3}, {0, 150, 20}), ids = ids_tensor(bench, {0}),
               statistics = bench.empty(DType::f64, {1, 3, 1});
  bench.ops->loss_part(
      {.logits = logits, .labels = ids, .statistics = statistics.slice(0, 0, 1).reshape({3, 1}), .cap = 300},
      bench.stream());
  LossJoinArgs args{.logits = logits, .labels = ids, .statistics = statistics, .loss = {}, .weight = {}};
  args.ids = 3;
  args.scale = 0.25;
  args.terms.cap = 300;
  bench.ops->loss_join(args, bench.stream());
  EXPECT_NEAR(values(logits)[0], -0.25, 1e-6);
}

}  // namespace
}  // namespace gangway
