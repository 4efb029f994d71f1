// A vocabulary that tp does not divide, whose parts differ by one id: loss, gradients, steps,
// log-probabilities and text of a mesh are those of one rank in f64.
#include <map>

#include "nn/small_llama.h"
#include "train/log_probs.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

constexpr int64_t kRows = 4, kLength = 12;
constexpr double kTolerance = 1e-12;

struct Case {
  int64_t vocab;
  MeshOptions mesh = {.dp_shard = 1};
  bool loss = true;  // loss parallelism; else the logits are gathered
  bool tied = false, sequence = false, terms = false;
  double cap = 0;  // of logits
  int chunks = 1;

  int ranks() const { return mesh.pp * mesh.dp_replicate * mesh.dp_shard * mesh.cp * mesh.tp; }
  Case alone() const {
    Case one = *this;
    one.mesh = {.dp_shard = 1};
    one.sequence = false;
    one.chunks = 1;
    return one;
  }
  std::string text() const {
    return gangway::text(vocab, " ids, ", describe(mesh), loss ? ", loss parallel" : ", gathered",
                         tied ? ", tied" : "", sequence ? ", sequence" : "", terms ? ", terms" : "");
  }
  // Heads and widths are multiples of 2, 3 and 4.
  DecoderOptions config() const {
    DecoderOptions config = test::small_llama(tied);
    config.vocab = vocab;
    config.heads = config.kv_heads = 12;
    config.ffn = 24;
    config.logit_cap = cap;
    config.deviation = 0.3;
    return config;
  }
  StepOptions step() const {
    StepOptions step;
    step.microbatches = mesh.pp;
    step.max_grad_norm = 0.5;
    if (terms) step.label_smoothing = 0.1, step.z_loss = 0.01;
    return step;
  }
};

std::unique_ptr<Model> model_of(Gang& root, const Case& c) {
  ParallelOptions options = test::parallel(Strategy::full_shard);
  options.tensor.family = {.sequence_parallel = c.sequence, .loss_parallel = c.loss};
  options.tensor.overlap_chunks = c.chunks;
  return test::make_model(make_decoder(c.config()), create_gangs(root.shared_from_this(), c.mesh), options);
}

struct Rows {
  int64_t first = 0, count = 0;
};
Rows rows_of(Model& model) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  return {kRows / count * index, kRows / count};
}

// This rank's rows of the batch, which has the first and the last id among its tokens and its labels.
Batch batch_of(Model& model, int64_t vocab, int64_t step) {
  const Rows rows = rows_of(model);
  std::vector<int64_t> ids, labels;
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
    for (int64_t s = 0; s < kLength; ++s) {
      ids.push_back(s == 1 ? vocab - 1 : s == 2 ? 0 : (7 * row + 5 * s + s * s + step) % vocab);
      labels.push_back(s == 0 ? vocab - 1 : s == 4 ? 0 : (3 * row + 11 * s + step) % vocab);
      if (s % 5 == 3) labels.back() = -100;
    }
  Batch batch;
  batch.inputs = {test::tensor_of(model, DType::i64, {rows.count, kLength}, ids.data())};
  batch.targets = {test::tensor_of(model, DType::i64, {rows.count, kLength}, labels.data())};
  return batch;
}

std::map<std::string, std::vector<double>> values_of(Model& model) {
  std::map<std::string, std::vector<double>> values;
  for (const NamedParameter& p : model.inspect().parameters())
    values[p.name] = test::gathered(model, *p.parameter);
  return values;
}

struct Numbers {
  std::vector<double> losses, norms;  // of an evaluation, a step by SGD and three by AdamW; of the steps
  std::map<std::string, std::vector<double>> gradients, values;
  std::vector<double> log_probs;  // of all rows
  std::vector<int64_t> tokens;
};

// A step of plain SGD moves each parameter by its gradient times the rate.
void add_gradients(Gang& root, const Case& c, Numbers& numbers) {
  const auto model = model_of(root, c);
  Stream& stream = model->device().stream();
  OptimizerOptions sgd;
  sgd.lr = 65536;
  const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), sgd, model->ops());
  numbers.gradients = values_of(*model);
  StepOptions step = c.step();
  step.max_grad_norm = 1e30;  // the norm is wanted, and no gradient is clipped
  const StepResult result = train_step(*model, optimizer.get(), batch_of(*model, c.vocab, 0), step, stream);
  numbers.losses.push_back(result.loss);
  numbers.norms.push_back(result.grad_norm);
  for (const auto& [name, after] : values_of(*model))
    for (size_t i = 0; i < after.size(); ++i) {
      double& x = numbers.gradients.at(name)[i];
      x = (x - after[i]) / sgd.lr;
    }
}

void add_steps(Gang& root, const Case& c, Numbers& numbers) {
  const auto model = model_of(root, c);
  Stream& stream = model->device().stream();
  OptimizerOptions adamw;
  adamw.lr = 0.01;
  const auto optimizer = make_optimizer("adamw", model->inspect().parameters(), adamw, model->ops());
  numbers.losses.push_back(eval_step(*model, batch_of(*model, c.vocab, 0), c.step(), stream).loss);
  for (int64_t step = 0; step < 3; ++step) {
    const StepResult result =
        train_step(*model, optimizer.get(), batch_of(*model, c.vocab, step), c.step(), stream);
    numbers.losses.push_back(result.loss);
    numbers.norms.push_back(result.grad_norm);
  }
  numbers.values = values_of(*model);
  StepOptions plain;
  plain.microbatches = c.mesh.pp;
  numbers.log_probs = log_probs(*model, batch_of(*model, c.vocab, 1), plain, stream);
  GenerateOptions greedy;
  greedy.new_tokens = 6;
  greedy.temperature = 0;
  numbers.tokens = generate(*model, std::vector<int64_t>{c.vocab - 1, 0, 2}, greedy, stream);
}

void expect_one_rank(const Case& c) {
  SCOPED_TRACE(c.text());
  Numbers want;
  test::run_ranks(1, [&](Gang& root) {
    add_gradients(root, c.alone(), want);
    add_steps(root, c.alone(), want);
  });
  test::run_ranks(c.ranks(), [&](Gang& root) {
    Numbers got;
    add_gradients(root, c, got);
    add_steps(root, c, got);
    EXPECT_LT(test::distance(got.losses, want.losses), kTolerance);
    EXPECT_LT(test::distance(got.norms, want.norms), kTolerance);
    EXPECT_EQ(got.gradients.size(), want.gradients.size());
    for (const auto& [name, gradient] : want.gradients)
      EXPECT_LT(test::distance(got.gradients.at(name), gradient), kTolerance) << "gradient of " << name;
    for (const auto& [name, values] : want.values)
      EXPECT_LT(test::distance(got.values.at(name), values), kTolerance) << name;
    EXPECT_EQ(got.tokens, want.tokens);
    const auto model = model_of(root, c);
    const Rows rows = rows_of(*model);
    const auto first = want.log_probs.begin() + rows.first * kLength;
    EXPECT_LT(test::distance(got.log_probs, {first, first + rows.count * kLength}), kTolerance);
  });
}

TEST(Vocabulary, GatheredLogitsOfUnequalPartsGiveTheNumbersOfOneRank) {
  expect_one_rank({.vocab = 13, .mesh = {.dp_shard = 1, .tp = 2}, .loss = false, .terms = true});
}

TEST(Vocabulary, UnequalPartsGiveTheNumbersOfOneRank) {
  expect_one_rank({.vocab = 13, .mesh = {.dp_shard = 1, .tp = 2}});
  expect_one_rank({.vocab = 13, .mesh = {.dp_shard = 1, .tp = 4}, .tied = true, .terms = true});
  expect_one_rank({.vocab = 17, .mesh = {.dp_shard = 1, .tp = 3}, .loss = false, .tied = true, .cap = 3});
  expect_one_rank({.vocab = 101, .mesh = {.dp_shard = 1, .tp = 3}, .terms = true, .cap = 3});
  expect_one_rank({.vocab = 101, .mesh = {.dp_shard = 1, .tp = 4}, .loss = false});
}

TEST(Vocabulary, OfLessThanTwoIdsForEachRankGivesTheNumbersOfOneRank) {
  expect_one_rank({.vocab = 5, .mesh = {.dp_shard = 1, .tp = 3}});
  expect_one_rank({.vocab = 5, .mesh = {.dp_shard = 1, .tp = 4}, .loss = false, .tied = true});
  expect_one_rank({.vocab = 7, .mesh = {.dp_shard = 1, .tp = 4}, .sequence = true, .terms = true});
}

TEST(Vocabulary, BesideDataParallelismGivesTheNumbersOfOneRank) {
  expect_one_rank({.vocab = 17, .mesh = {.dp_shard = 2, .tp = 2}, .sequence = true, .chunks = 2});
  expect_one_rank({.vocab = 13, .mesh = {.dp_shard = 2, .tp = 3}, .loss = false, .tied = true});
  expect_one_rank({.vocab = 101, .mesh = {.dp_replicate = 2, .dp_shard = 1, .tp = 3}, .sequence = true});
  expect_one_rank({.vocab = 101, .mesh = {.dp_shard = 1, .cp = 2, .tp = 2}, .tied = true, .terms = true});
}

// The stages of tied weights exchange gradients of parts that differ between the ranks of tp.
TEST(Vocabulary, BesidePipelinesGivesTheNumbersOfOneRank) {
  expect_one_rank({.vocab = 13, .mesh = {.pp = 2, .dp_shard = 1, .tp = 3}});
  expect_one_rank({.vocab = 101, .mesh = {.pp = 2, .dp_shard = 1, .tp = 2}, .loss = false, .tied = true});
  expect_one_rank({.vocab = 17,
                   .mesh = {.pp = 2, .dp_shard = 2, .tp = 2},
                   .tied = true,
                   .sequence = true,
                   .terms = true});
}

// The number of tokens of a chunk depends on the number of ids. With 6554 ids it is 304, with 6553 it is 320.
TEST(Vocabulary, RanksWithDifferentPartsTakeEqualChunksOfTokens) {
  DecoderOptions config = test::small_llama();
  config.vocab = 13107;
  config.dim = config.ffn = 4;
  config.heads = config.kv_heads = 2;
  config.layers = 1;
  config.max_positions = 320;
  StepResult want;
  for (const auto& [tp, loss] : {std::pair{1, true}, {2, true}, {2, false}})
    test::run_ranks(tp, [&](Gang& root) {
      ParallelOptions options = test::parallel(Strategy::full_shard);
      options.tensor.family.loss_parallel = loss;
      const auto model = test::make_model(
          make_decoder(config), create_gangs(root.shared_from_this(), {.dp_shard = 1, .tp = tp}), options);
      const auto optimizer = make_optimizer("sgd", model->inspect().parameters(), {}, model->ops());
      std::vector<int64_t> ids;
      for (int64_t s = 0; s < config.max_positions; ++s) ids.push_back(s * 4099 % config.vocab);
      Batch batch;
      batch.inputs = {test::tensor_of(*model, DType::i64, {1, config.max_positions}, ids.data())};
      StepOptions step;
      step.max_grad_norm = 1;
      const StepResult got = train_step(*model, optimizer.get(), batch, step, model->device().stream());
      if (tp == 1) want = got;
      EXPECT_NEAR(got.loss / want.loss, 1, kTolerance);
      EXPECT_NEAR(got.grad_norm / want.grad_norm, 1, kTolerance);
    });
}

}  // namespace
}  // namespace gangway
