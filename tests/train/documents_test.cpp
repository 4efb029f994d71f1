// Steps with rows that hold several documents: equal to the documents one by one, on every mesh; and the
// batches that are refused.
#include <map>

#include "nn/documents.h"
#include "nn/small_llama.h"
#include "train/manual.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::error_of;

constexpr int64_t kRows = 4, kTokens = 24;

// The lengths of the documents of each row; padding comes last where they do not fill it.
const std::vector<int64_t> kLengths[kRows] = {{7, 1, 11, 5}, {24}, {1, 1, 2, 13}, {3, 18}};

std::vector<int64_t> ids_of_rows() {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kRows * kTokens; ++i) ids.push_back((5 * i + i * i / 3) % 17);
  return ids;
}

// -1 is padding. Documents need not be numbered in order.
std::vector<int64_t> documents_of_rows() {
  std::vector<int64_t> documents;
  for (const std::vector<int64_t>& lengths : kLengths) {
    const size_t row = documents.size();
    int64_t id = 40;
    for (const int64_t length : lengths) documents.insert(documents.end(), static_cast<size_t>(length), id--);
    documents.resize(row + kTokens, -1);
  }
  return documents;
}

DecoderOptions config_of(int64_t window) {
  DecoderOptions config = test::small_llama();
  config.max_positions = 48;
  config.window = window;
  config.score_cap = 0.8;
  config.sinks = true;
  return config;
}

// Some documents are longer than 12 tokens and take the other factors, beside short ones of their row.
DecoderOptions with_longrope(DecoderOptions config) {
  config.rope.scaling = RopeScaling::longrope;
  config.rope.factor = 4;
  config.rope.original_positions = 12;
  config.rope.short_factors = {1, 1.5, 2};
  config.rope.long_factors = {3, 5, 9};
  return config;
}

struct Case {
  const char* name;
  MeshOptions degrees = {.dp_shard = 1};
  int microbatches = 1;
  ContextMethod context = ContextMethod::ring;
  RecomputeKind recompute = RecomputeKind::none;
  bool sequence_parallel = false, offload = false;
  int ranks() const { return degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp; }
};

std::shared_ptr<Model> model_of(Gang& root, const Case& c, const DecoderOptions& config) {
  ParallelOptions options = test::parallel(Strategy::full_shard);
  options.context = c.context;
  options.recompute.kind = c.recompute;
  options.activation_offload = c.offload;
  options.tensor.family.sequence_parallel = c.sequence_parallel;
  auto model =
      std::make_shared<Model>(make_decoder(config), create_gangs(root.shared_from_this(), c.degrees));
  model->build().parallelize(options);
  // Initial sinks and weights are small; larger ones make every gradient count.
  uint32_t seed = 1;
  for (const NamedParameter& p : model->inspect().parameters()) {
    std::vector<double> values(static_cast<size_t>(p.parameter->shape.count()));
    for (double& x : values)
      x = static_cast<double>((seed = seed * 1664525u + 1013904223u) >> 8) / 0x1p24 - 0.5;
    model->inspect().assign(*p.parameter,
                            test::tensor_of(*model, DType::f64, p.parameter->shape, values.data()),
                            model->device().stream());
  }
  return model;
}

template <typename T = int64_t>
Tensor on_host(DType dtype, const Shape& shape, const std::vector<T>& values) {
  static const std::shared_ptr<Device> host = make_device("cpu");
  const Tensor made = Tensor::allocate(host->allocator(), dtype, shape);
  std::copy_n(values.begin(), values.size(), made.data<T>());
  return made;
}

Batch batch_of(Model& model) {
  int index = 0, count = 1;
  model.gangs().data_shard(&index, &count);
  const int64_t rows = kRows / count, from = index * rows * kTokens;
  const Shape shape{rows, kTokens};
  const std::vector<int64_t> documents = documents_of_rows();
  Batch batch;
  batch.inputs = {test::tensor_of(model, DType::i64, shape, ids_of_rows().data() + from)};
  batch.documents =
      on_host(DType::i64, shape,
              std::vector<int64_t>(documents.begin() + from, documents.begin() + from + shape.count()));
  return batch;
}

using Gradients = std::map<std::string, std::vector<double>>;
struct Outcome {
  double loss = 0;
  int64_t weight = 0;
  Gradients gradients;
};

// The mean loss of all documents, each run as a row of its own on one rank.
Outcome one_by_one(const DecoderOptions& config) {
  Outcome made;
  for (const auto& lengths : kLengths)
    for (const int64_t length : lengths) made.weight += length - 1;
  test::run_ranks(1, [&](Gang& root) {
    const auto model = model_of(root, {"one by one"}, config);
    Stream& stream = model->device().stream();
    const std::vector<int64_t> ids = ids_of_rows();
    for (size_t row = 0; row < kRows; ++row) {
      auto token = ids.begin() + static_cast<ptrdiff_t>(row) * kTokens;
      for (const int64_t length : kLengths[row]) {
        std::vector<int64_t> labels(token + 1, token + length);
        labels.push_back(-100);
        const Shape shape{1, length};
        ManualFrame frame(model, {.loss_scale = 1 / static_cast<double>(made.weight)});
        const Values inputs = {test::tensor_of(*model, DType::i64, shape, &*token),
                               test::tensor_of(*model, DType::i64, shape, labels.data())};
        const Values loss = manual_forward(*model, inputs, &frame, stream);
        made.loss += test::HostMemory(loss.at(0)).data<double>()[0] / static_cast<double>(made.weight);
        manual_backward(frame, {}, stream);
        token += length;
      }
    }
    for (const NamedParameter& p : model->inspect().parameters())
      made.gradients[p.name] = test::gathered_gradient(*model, *p.parameter);
  });
  return made;
}

// A step of plain SGD with rate 1 moves each parameter by its gradient.
Outcome step_of(Model& model, const Case& c, const Batch& batch) {
  Gradients before;
  for (const NamedParameter& p : model.inspect().parameters())
    before[p.name] = test::gathered(model, *p.parameter);
  OptimizerOptions sgd;
  sgd.lr = 1;
  const auto optimizer = make_optimizer("sgd", model.inspect().parameters(), sgd, model.ops());
  StepOptions options;
  options.microbatches = c.microbatches;
  const StepResult result = train_step(model, optimizer.get(), batch, options, model.device().stream());
  for (const NamedParameter& p : model.inspect().parameters()) {
    const std::vector<double> after = test::gathered(model, *p.parameter);
    for (size_t i = 0; i < after.size(); ++i) before[p.name][i] -= after[i];
  }
  return {result.loss, static_cast<int64_t>(result.weight), before};
}

void expect_equal(const Outcome& got, const Outcome& want, const std::string& what) {
  EXPECT_EQ(got.weight, want.weight) << what;
  EXPECT_NEAR(got.loss / want.loss, 1, 1e-12) << what;
  for (const auto& [name, gradient] : want.gradients)
    EXPECT_LT(test::distance(got.gradients.at(name), gradient), 1e-12) << what << ", " << name;
}

TEST(PackedDocuments, EqualTheDocumentsOneByOneWithWindowsOfEveryLength) {
  for (const int64_t window : {0, 1, 3, 7, 24, 100}) {
    const Outcome want = one_by_one(config_of(window));
    test::run_ranks(1, [&](Gang& root) {
      const Case c{"one rank", {.dp_shard = 1}, 3};
      const auto model = model_of(root, c, config_of(window));
      expect_equal(step_of(*model, c, batch_of(*model)), want, text("window ", window));
    });
  }
}

TEST(PackedDocuments, TakeLongropesFactorsEachByItsOwnLength) {
  const DecoderOptions config = with_longrope(config_of(0));
  const Outcome want = one_by_one(config);
  for (const int microbatches : {1, 4})
    test::run_ranks(1, [&](Gang& root) {
      const Case c{"one rank", {.dp_shard = 1}, microbatches};
      const auto model = model_of(root, c, config);
      expect_equal(step_of(*model, c, batch_of(*model)), want, text(microbatches, " microbatches"));
    });
}

const Case kCases[] = {
    {"cp 2 ring", {.dp_shard = 1, .cp = 2}, 2},
    {"cp 2 all_gather", {.dp_shard = 1, .cp = 2}, 2, ContextMethod::all_gather},
    {"cp 2 all_to_all", {.dp_shard = 1, .cp = 2}, 2, ContextMethod::all_to_all},
    {"cp 4 ring, recomputed", {.dp_shard = 1, .cp = 4}, 1, ContextMethod::ring, RecomputeKind::full},
    {"cp 4 all_gather", {.dp_shard = 1, .cp = 4}, 1, ContextMethod::all_gather},
    {"cp 4 all_to_all", {.dp_shard = 1, .cp = 4}, 1, ContextMethod::all_to_all},
    {"tp 2", {.dp_shard = 1, .tp = 2}, 1},
    {"tp 2 with sequences", {.dp_shard = 1, .tp = 2}, 3, ContextMethod::ring, RecomputeKind::none, true},
    {"pp 2", {.pp = 2, .dp_shard = 1}, 3},
    {"dp 2, recomputed", {.dp_shard = 2}, 2, ContextMethod::ring, RecomputeKind::full},
    {"selective", {.dp_shard = 1}, 2, ContextMethod::ring, RecomputeKind::selective},
    {"offloaded", {.dp_shard = 1}, 2, ContextMethod::ring, RecomputeKind::none, false, true},
    {"pp 2 x tp 2 x dp 2", {.pp = 2, .dp_shard = 2, .tp = 2}, 2},
    {"cp 2 x tp 2", {.dp_shard = 1, .cp = 2, .tp = 2}, 1, ContextMethod::all_gather},
    {"pp 2 x cp 2", {.pp = 2, .dp_shard = 1, .cp = 2}, 2},
};

TEST(PackedDocuments, EveryMeshGivesTheGradientsOfOneRank) {
  for (const DecoderOptions& config : {config_of(0), with_longrope(config_of(4))}) {
    const Outcome want = one_by_one(config);
    for (const Case& c : kCases)
      test::run_ranks(c.ranks(), [&](Gang& root) {
        const auto model = model_of(root, c, config);
        expect_equal(step_of(*model, c, batch_of(*model)), want, text(c.name, ", window ", config.window));
      });
  }
}

TEST(PackedDocuments, RowsWithoutDocumentsTakeAWindowOnEveryMesh) {
  Outcome want;
  const auto rows = [](Model& model) {
    Batch batch = batch_of(model);
    batch.documents = {};
    return batch;
  };
  test::run_ranks(1, [&](Gang& root) {
    const auto model = model_of(root, {"one rank"}, config_of(5));
    want = step_of(*model, {"one rank"}, rows(*model));
    const auto without = model_of(root, {"no window"}, config_of(0));
    EXPECT_GT(std::abs(step_of(*without, {"no window"}, rows(*without)).loss - want.loss), 1e-6);
  });
  for (const Case& c : kCases)
    test::run_ranks(c.ranks(), [&](Gang& root) {
      const auto model = model_of(root, c, config_of(5));
      expect_equal(step_of(*model, c, rows(*model)), want, c.name);
    });
}

// The logits of row 0, whose documents have 7, 1, 11 and 5 tokens.
std::vector<double> logits_of(Model& model, const std::vector<int64_t>& tokens) {
  const std::vector<int64_t> all = documents_of_rows();
  const Documents documents({on_host(DType::i64, {1, kTokens}, {all.begin(), all.begin() + kTokens}), {}},
                            {});
  Context ctx = model.run().context(model.device().stream());
  ctx.documents = &documents;
  const StackScope scope(model.temporaries());
  const Tensor ids = test::tensor_of(model, DType::i64, Shape{1, kTokens}, tokens.data());
  const Tensor logits = model.run().forward(ctx, {&ids, 1}, nullptr).at(0);
  const test::HostMemory host(logits);
  std::vector<double> made(host.data<double>(), host.data<double>() + logits.count());
  model.run().reshard();
  return made;
}

TEST(PackedDocuments, AChangeInOneDocumentLeavesTheBitsOfTheOthersAlone) {
  test::run_ranks(1, [](Gang& root) {
    const auto model = model_of(root, {"one rank"}, config_of(0));
    std::vector<int64_t> tokens = ids_of_rows();
    tokens.resize(kTokens);
    const std::vector<double> before = logits_of(*model, tokens);
    for (size_t t = 0; t < 7; ++t) tokens[t] = (tokens[t] + 1) % 17;
    const std::vector<double> after = logits_of(*model, tokens);
    const size_t first = 7 * 17;
    EXPECT_TRUE(std::equal(before.begin() + first, before.end(), after.begin() + first));
    EXPECT_FALSE(std::equal(before.begin(), before.begin() + first, after.begin()));
  });
}

TEST(PackedDocuments, PositionsOfTheCallerTakeThePlaceOfThoseInEachDocument) {
  for (const int cp : {1, 2})
    test::run_ranks(cp, [&](Gang& root) {
      const Case c{"cp", {.dp_shard = 1, .cp = cp}};
      const auto model = model_of(root, c, config_of(0));
      Batch batch = batch_of(*model);
      const auto loss = [&] { return eval_step(*model, batch, {}, model->device().stream()).loss; };
      const double without = loss();
      std::vector<int32_t> positions;
      const std::vector<int64_t> documents = documents_of_rows();
      for (size_t i = 0; i < documents.size(); ++i)
        positions.push_back(i % kTokens == 0 || documents[i] != documents[i - 1] ? 0 : positions.back() + 1);
      batch.positions = on_host(DType::i32, {kRows, kTokens}, positions);
      EXPECT_EQ(loss(), without);
      for (int32_t& position : positions) position = 2 * position;
      batch.positions = on_host(DType::i32, {kRows, kTokens}, positions);
      EXPECT_GT(std::abs(loss() - without), 1e-6);
    });
}

TEST(PackedDocuments, LabelsOfTheCallerAreShiftedWithinDocuments) {
  test::run_ranks(1, [](Gang& root) {
    const auto model = model_of(root, {"one rank"}, config_of(0));
    Batch batch = batch_of(*model);
    const StepResult made = eval_step(*model, batch, {}, model->device().stream());
    batch.targets = batch.inputs;
    batch.shift_labels = true;
    const StepResult shifted = eval_step(*model, batch, {}, model->device().stream());
    EXPECT_EQ(shifted.loss, made.loss);
    EXPECT_EQ(shifted.weight, made.weight);
  });
}

void expect_refusal(Model& model, const Batch& batch, Code code, const std::string& words) {
  const Error error = error_of([&] { eval_step(model, batch, {}, model.device().stream()); });
  EXPECT_EQ(error.code(), code) << error.message();
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

TEST(PackedDocuments, WrongDocumentsAndPositionsAreRefusedWithTheirPlace) {
  test::run_ranks(1, [](Gang& root) {
    const auto model = model_of(root, {"one rank"}, config_of(0));
    const auto refused = [&](const char* words, auto&& change) {
      Batch batch = batch_of(*model);
      change(batch);
      expect_refusal(*model, batch, Code::invalid_argument, words);
    };
    refused("document 40 comes again at token 23 of row 2",
            [](Batch& b) { b.documents.data<int64_t>()[3 * kTokens - 1] = 40; });
    refused("batch.documents is f32", [](Batch& b) {
      b.documents = on_host<float>(DType::f32, {kRows, kTokens}, std::vector<float>(kRows * kTokens));
    });
    refused("batch.documents is i64 [4, 23]", [](Batch& b) {
      b.documents = on_host(DType::i64, {kRows, 23}, std::vector<int64_t>(kRows * 23));
    });
    std::vector<int64_t> positions(kRows * kTokens);
    positions[kTokens + 3] = 48;
    refused("token 3 of row 1 has position 48, outside of [0, 48)", [&](Batch& b) {
      b.positions = on_host(DType::i64, {kRows, kTokens}, positions);
    });
    positions[kTokens + 3] = -1;
    refused("token 3 of row 1 has position -1", [&](Batch& b) {
      b.positions = on_host(DType::i64, {kRows, kTokens}, positions);
    });
    EXPECT_GT(eval_step(*model, batch_of(*model), {}, model->device().stream()).weight, 0);
  });
}

TEST(PackedDocuments, RanksOfOneBatchThatPassOtherDocumentsAreTold) {
  for (const MeshOptions& degrees : {MeshOptions{.dp_shard = 1, .tp = 2}, MeshOptions{.dp_shard = 1, .cp = 2},
                                     MeshOptions{.pp = 2, .dp_shard = 1}})
    test::run_ranks(2, [&](Gang& root) {
      const auto model = model_of(root, {"two ranks", degrees}, config_of(0));
      Batch batch = batch_of(*model);
      if (root.rank() == 1) batch.documents.data<int64_t>()[7] = 38;
      expect_refusal(*model, batch, Code::mismatch, "their batches differ");
      EXPECT_GT(eval_step(*model, batch_of(*model), {}, model->device().stream()).weight, 0);
    });
}

}  // namespace
}  // namespace gangway
