// Cross-entropy over a vocabulary in parts, against its definition over the whole vocabulary in f64.
#include "ops/kernel_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Whole {
  double loss = 0, weight = 0;
  std::vector<double> gradient;  // of the logits
};

Whole whole_of(const std::vector<double>& logits, int64_t vocabulary, const std::vector<int64_t>& labels,
               double scale) {
  Whole w;
  w.gradient.assign(logits.size(), 0);
  const auto V = static_cast<size_t>(vocabulary);
  for (size_t c = 0; c < labels.size(); ++c) {
    if (labels[c] == -100) continue;
    const double* row = logits.data() + c * V;
    const double most = *std::max_element(row, row + V);
    double sum = 0;
    for (size_t j = 0; j < V; ++j) sum += std::exp(row[j] - most);
    w.loss += std::log(sum) + most - row[labels[c]];
    w.weight += 1;
    for (size_t j = 0; j < V; ++j)
      w.gradient[c * V + j] =
          scale * (std::exp(row[j] - most) / sum - (static_cast<int64_t>(j) == labels[c] ? 1 : 0));
  }
  return w;
}

// The parts' logits, as one tensor each.
std::vector<Tensor> cut(Bench& bench, const std::vector<double>& logits, int64_t rows, DType dtype,
                        const std::vector<int64_t>& bounds) {
  std::vector<Tensor> parts;
  const auto V = static_cast<size_t>(bounds.back());
  for (size_t p = 0; p + 1 < bounds.size(); ++p) {
    std::vector<double> own;
    for (size_t c = 0; c < static_cast<size_t>(rows); ++c)
      own.insert(own.end(), logits.begin() + static_cast<long>(c * V) + bounds[p],
                 logits.begin() + static_cast<long>(c * V) + bounds[p + 1]);
    parts.push_back(tensor(bench, dtype, {rows, bounds[p + 1] - bounds[p]}, own));
  }
  return parts;
}

// What each part leaves, side by side again, and what each says of the loss.
struct Joined {
  std::vector<double> gradient, losses, weights;
};

Joined joined(Bench& bench, const std::vector<double>& logits, const std::vector<int64_t>& labels,
              DType dtype, const std::vector<int64_t>& bounds, double scale) {
  const auto rows = static_cast<int64_t>(labels.size());
  const int64_t W = static_cast<int64_t>(bounds.size()) - 1, V = bounds.back();
  const std::vector<Tensor> parts = cut(bench, logits, rows, dtype, bounds);
  const Tensor ids = ids_tensor(bench, labels), statistics = bench.empty(DType::f64, {W, 3, rows});
  for (int64_t p = 0; p < W; ++p)
    bench.ops->loss_part({parts[static_cast<size_t>(p)], ids,
                          statistics.slice(0, p, p + 1).reshape({3, rows}), bounds[static_cast<size_t>(p)]},
                         bench.stream());
  Joined all;
  all.gradient.resize(static_cast<size_t>(rows * V));
  for (int64_t p = 0; p < W; ++p) {
    const auto at = static_cast<size_t>(p);
    const Tensor loss = tensor(bench, DType::f64, {1}, {1}), weight = tensor(bench, DType::f64, {1}, {2});
    bench.ops->loss_join({.logits = parts[at],
                          .labels = ids,
                          .statistics = statistics,
                          .loss = loss,
                          .weight = weight,
                          .part = static_cast<int>(p),
                          .first_id = bounds[at],
                          .ids = V,
                          .scale = scale},
                         bench.stream());
    all.losses.push_back(element(loss, 0) - 1);
    all.weights.push_back(element(weight, 0) - 2);
    const std::vector<double> own = values(parts[at]);
    const int64_t width = bounds[at + 1] - bounds[at];
    for (int64_t c = 0; c < rows; ++c)
      for (int64_t j = 0; j < width; ++j)
        all.gradient[static_cast<size_t>(c * V + bounds[at] + j)] = own[static_cast<size_t>(c * width + j)];
  }
  return all;
}

class LossParts : public EachIsa {};

TEST_P(LossParts, JoinedPartsAreTheCrossEntropyOfTheWholeVocabulary) {
  const std::vector<std::vector<int64_t>> cuts = {
      {0, 37}, {0, 1, 37}, {0, 18, 36, 37}, {0, 9, 18, 27, 37}, {0, 16, 36}};
  for (int threads : {1, 3})
    for (DType dtype : {DType::f64, DType::f32})
      for (const int64_t rows : {0, 1, 23})
        for (const double size : {1.0, 40.0})
          for (const std::vector<int64_t>& bounds : cuts) {
            Bench bench(GetParam(), threads);
            const int64_t ids = bounds.back();
            std::vector<int64_t> labels;
            for (int64_t c = 0; c < rows; ++c) labels.push_back(c % 5 == 4 ? -100 : c * 11 % ids);
            const std::vector<double> logits = values(random_tensor(bench, dtype, {rows, ids}, 3, size));
            const Whole want = whole_of(logits, ids, labels, 0.125);
            const Joined got = joined(bench, logits, labels, dtype, bounds, 0.125);
            const double tolerance = dtype == DType::f64 ? 1e-13 : 4e-6;
            expect_close(got.gradient, want.gradient, tolerance, "gradient", 0.1);
            for (size_t p = 0; p + 1 < bounds.size(); ++p) {
              EXPECT_NEAR(got.losses[p], want.loss, tolerance * std::max(1.0, want.loss));
              EXPECT_EQ(got.losses[p], got.losses[0]) << "every part says the same";
              EXPECT_EQ(got.weights[p], want.weight);
            }
          }
}

TEST_P(LossParts, ALabelOutsideTheVocabularyGivesNan) {
  for (const int64_t outside : {int64_t{-1}, int64_t{4}, INT64_MAX, INT64_MIN}) {
    Bench bench(GetParam());
    const Joined got = joined(bench, std::vector<double>(8, 0.5), {1, outside}, DType::f32, {0, 2, 4}, 1);
    EXPECT_TRUE(std::isnan(got.losses[0])) << outside;
    for (size_t j = 0; j < 8; ++j) EXPECT_EQ(std::isnan(got.gradient[j]), j >= 4) << outside << " " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LossParts, all_isas(), isa_name);

}  // namespace
}  // namespace gangway
