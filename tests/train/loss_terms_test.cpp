// Weights of tokens, label smoothing and z-loss in steps, and log-probabilities, over meshes.
#include <algorithm>
#include <map>

#include "train/log_probs.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::error_of;
using test::Reference;

template <typename Call>
void expect_refusal(Code code, const char* words, Call&& call) {
  const Error error = error_of(call);
  EXPECT_STREQ(name(error.code()), name(code)) << error.message();
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

struct Mesh {
  const char* name;
  MeshOptions mesh;
  bool sequence_parallel = false;
  bool loss_parallel = true;
  int ranks() const {
    return std::max(1, mesh.pp) * std::max(1, mesh.dp_shard) * std::max(1, mesh.cp) * std::max(1, mesh.tp);
  }
};
const Mesh kMeshes[] = {{"one rank", {}},
                        {"dp 2", {.dp_shard = 2}},
                        {"tp 2", {.tp = 2}},
                        {"tp 2, sequence parallel", {.tp = 2}, true},
                        {"tp 2, logits gathered", {.tp = 2}, false, false},
                        {"cp 2", {.cp = 2}},
                        {"pp 2", {.pp = 2}},
                        {"pp 2, tp 2, dp 2", {.pp = 2, .dp_shard = 2, .tp = 2}}};

std::unique_ptr<Model> model_on(Gang& root, const Mesh& m, const Reference& reference) {
  ParallelOptions options = test::parallel(Strategy::full_shard);
  options.tensor.family.sequence_parallel = m.sequence_parallel;
  options.tensor.family.loss_parallel = m.loss_parallel;
  auto model = test::make_model(make_decoder(reference.config), create_gangs(root.shared_from_this(), m.mesh),
                                options);
  test::assign_initial(*model, reference);
  return model;
}

// This rank's rows of the reference's batch, with a weight for each label.
Batch weighted_rows(Model& model, const Reference& reference, bool weights = true) {
  Batch batch = test::own_rows(model, reference, 0);
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  const int64_t first = balanced_bounds(reference.batch(), count)[static_cast<size_t>(index)];
  std::vector<double> values;
  for (int64_t i = 0; i < batch.inputs[0].count(); ++i)
    values.push_back(0.25 * static_cast<double>((first * reference.sequence() + i) % 7) - 0.25);
  if (weights)
    batch.token_weights = test::tensor_of(model, DType::f64, batch.inputs[0].shape(), values.data());
  return batch;
}

struct Outcome {
  double loss = 0, weight = 0, eval_loss = 0;
  std::vector<double> parameters;
};

Outcome trained(Gang& root, const Mesh& m, const Reference& reference, const StepOptions& options) {
  const auto model = model_on(root, m, reference);
  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), test::optimizer_of(reference), model->ops());
  Stream& stream = model->device().stream();
  const Batch batch = weighted_rows(*model, reference);
  Outcome outcome;
  outcome.eval_loss = eval_step(*model, batch, options, stream).loss;
  const StepResult result = train_step(*model, optimizer.get(), batch, options, stream);
  outcome.loss = result.loss;
  outcome.weight = result.weight;
  for (const NamedParameter& named : model->inspect().parameters())
    for (const double x : test::gathered(*model, *named.parameter)) outcome.parameters.push_back(x);
  return outcome;
}

TEST(LossTerms, AStepWithAllTermsIsOnEveryMeshThatOfOneRank) {
  Reference reference("llama_parity");
  StepOptions options;
  options.microbatches = 2;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  Outcome alone;
  for (const Mesh& m : kMeshes)
    test::run_ranks(m.ranks(), [&](Gang& root) {
      const Outcome got = trained(root, m, reference, options);
      if (m.ranks() == 1) alone = got;
      EXPECT_NEAR(got.loss, alone.loss, 1e-11) << m.name;
      EXPECT_NEAR(got.eval_loss, alone.loss, 1e-11) << m.name;
      EXPECT_NEAR(got.weight, alone.weight, 1e-11) << m.name;
      EXPECT_LT(test::distance(got.parameters, alone.parameters), 1e-9) << m.name;
    });
}

// The log-probabilities of a model without a mesh, from whole logits.
std::vector<double> log_softmax(Model& model, const Batch& batch) {
  const StackScope scope(model.temporaries());
  Context ctx = model.run().context(model.device().stream());
  const Tensor logits = model.run().forward(ctx, batch.inputs, nullptr).at(0);
  const test::HostMemory host(logits), labels(batch.targets[0]);
  const int64_t vocab = logits.shape().back();
  std::vector<double> all;
  for (int64_t t = 0; t < batch.targets[0].count(); ++t) {
    const double* row = host.data<double>() + t * vocab;
    const int64_t label = labels.data<int64_t>()[t];
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - row[0]);
    all.push_back(label == -100 ? 0 : row[label] - row[0] - std::log(sum));
  }
  return all;
}

TEST(LogProbs, AreOnEveryMeshThoseOfWholeLogits) {
  const Reference reference("llama_parity");
  std::vector<double> want;
  test::run_ranks(1, [&](Gang& root) {
    const auto model = model_on(root, kMeshes[0], reference);
    want = log_softmax(*model, weighted_rows(*model, reference, false));
  });
  for (const Mesh& m : kMeshes)
    for (const int microbatches : {1, 3})
      test::run_ranks(m.ranks(), [&](Gang& root) {
        const auto model = model_on(root, m, reference);
        StepOptions options;
        options.microbatches = microbatches;
        const Batch batch = weighted_rows(*model, reference, false);
        const std::vector<double> got = log_probs(*model, batch, options, model->device().stream());
        int index = 0, count = 1;
        model->gangs().data_shard(&index, &count);
        const int64_t first = balanced_bounds(reference.batch(), count)[static_cast<size_t>(index)];
        ASSERT_EQ(static_cast<int64_t>(got.size()), batch.inputs[0].count());
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[static_cast<size_t>(first * reference.sequence()) + i], 1e-11)
              << m.name << " " << i;
      });
}

// Any loss of log-probabilities: here half the sum of their squares, over `divisor`.
double loss_of(const std::vector<double>& log_probs, double divisor) {
  double sum = 0;
  for (const double x : log_probs) sum += 0.5 * x * x;
  return sum / divisor;
}

// A small step of SGD along the gradient makes the loss smaller by the gradient's square times the rate.
TEST(LogProbs, AStepWithTheNegativeDerivativesAsWeightsDescendsTheLoss) {
  const Reference reference("llama_parity");
  for (const Mesh& m : {kMeshes[0], kMeshes[2], kMeshes[5], kMeshes[6]})
    test::run_ranks(m.ranks(), [&](Gang& root) {
      const auto model = model_on(root, m, reference);
      Stream& stream = model->device().stream();
      OptimizerOptions sgd;
      sgd.lr = 1e-9;
      const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), sgd, model->ops());
      Batch batch = weighted_rows(*model, reference, false);
      const std::vector<double> before = log_probs(*model, batch, {}, stream);
      std::vector<double> weights;
      for (const double x : before) weights.push_back(-x);
      batch.token_weights = test::tensor_of(*model, DType::f64, batch.inputs[0].shape(), weights.data());
      batch.weight = 4;
      StepOptions options;
      options.max_grad_norm = 1e30;
      const StepResult result = train_step(*model, optimizer.get(), batch, options, stream);
      batch.token_weights = {};
      batch.weight = -1;
      const double change = loss_of(log_probs(*model, batch, {}, stream), 4) - loss_of(before, 4);
      EXPECT_NEAR(change / (-sgd.lr * result.grad_norm * result.grad_norm), 1, 1e-3) << m.name;
    });
}

TEST(LossTerms, WithoutAWeightTheLossIsDividedByTheSumOfTheWeights) {
  const Reference reference("llama_parity");
  test::run_ranks(1, [&](Gang& root) {
    const auto model = model_on(root, kMeshes[0], reference);
    Stream& stream = model->device().stream();
    const Batch plain = weighted_rows(*model, reference, false), weighted = weighted_rows(*model, reference);
    const std::vector<double> log_p = log_probs(*model, plain, {}, stream);
    const test::HostMemory weights(weighted.token_weights), labels(plain.targets[0]);
    double loss = 0, sum = 0;
    for (size_t i = 0; i < log_p.size(); ++i) {
      if (labels.data<int64_t>()[i] == -100) continue;
      loss -= weights.data<double>()[i] * log_p[i];
      sum += weights.data<double>()[i];
    }
    const StepResult result = eval_step(*model, weighted, {}, stream);
    EXPECT_NEAR(result.loss, loss / sum, 1e-12);
    EXPECT_NEAR(result.weight, sum, 1e-12);
    // Shifted, a weight goes with its label: those of the tokens are the labels' of one place before.
    Batch shifted = weighted;
    shifted.targets = shifted.inputs;
    shifted.shift_labels = true;
    const StepResult moved = eval_step(*model, shifted, {}, stream);
    double of_next = 0;
    for (int64_t row = 0; row < reference.batch(); ++row)
      for (int64_t s = 1; s < reference.sequence(); ++s)
        of_next += weights.data<double>()[row * reference.sequence() + s];
    EXPECT_NEAR(moved.weight, of_next, 1e-12);
  });
}

TEST(LossTerms, WrongTermsAreRefused) {
  const Reference reference("llama_parity");
  test::run_ranks(1, [&](Gang& root) {
    const auto model = model_on(root, kMeshes[0], reference);
    Stream& stream = model->device().stream();
    const auto refuses = [&](const Batch& batch, const StepOptions& options, const char* words) {
      expect_refusal(Code::invalid_argument, words, [&] { eval_step(*model, batch, options, stream); });
    };
    const Batch good = weighted_rows(*model, reference);
    Batch batch = good;
    batch.token_weights = good.inputs[0];
    refuses(batch, {}, "batch.token_weights is i64");
    batch.token_weights = good.token_weights.slice(1, 0, 1);
    refuses(batch, {}, "is not contiguous");
    std::vector<double> negative(static_cast<size_t>(good.inputs[0].count()), -1);
    batch.token_weights = test::tensor_of(*model, DType::f64, good.inputs[0].shape(), negative.data());
    refuses(batch, {}, "which cannot divide the loss; give batch.weight");
    StepOptions options;
    options.label_smoothing = 1;
    refuses(good, options, "step.label_smoothing = 1 is not in [0, 1)");
    options.label_smoothing = 0;
    options.z_loss = -1;
    refuses(good, options, "step.z_loss = -1");
    expect_refusal(Code::invalid_argument, "token_weights is given",
                   [&] { log_probs(*model, good, {}, stream); });
  });
}

}  // namespace
}  // namespace gangway
