// Text generation by a sharded model gives the same tokens on every rank and every mesh.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "train/train_testing.h"

namespace gangway {
namespace {

using test::error_of;
using test::Reference;

std::vector<int64_t> generated(Model& model, const std::vector<int64_t>& prompt,
                               const GenerateOptions& options) {
  return generate(model, prompt, options, model.device().stream());
}

std::unique_ptr<Model> reference_model(Gang& root, const Reference& reference,
                                       Strategy strategy = Strategy::full_shard) {
  auto model =
      test::make_model(make_decoder(reference.config), test::make_gangs(root), test::parallel(strategy));
  test::assign_initial(*model, reference);
  return model;
}

// The logits in the file tell the most likely token after each prefix of its first sequences.
TEST(Generate, GreedyTakesTheMostLikelyTokenOfTheReference) {
  const Reference reference("llama_small");
  const std::vector<double> logits = reference.values("logits");
  const std::vector<int64_t> tokens = reference.ids("tokens");
  const int64_t length = reference.at("logits").dims[1], vocab = reference.at("logits").dims[2];
  test::run_ranks(2, [&](Gang& root) {
    const auto model = reference_model(root, reference);
    GenerateOptions options;
    options.new_tokens = 1;
    options.temperature = 0;
    for (const int64_t prefix : {int64_t{1}, int64_t{5}, length}) {
      const double* row = logits.data() + (prefix - 1) * vocab;
      const auto expected = std::max_element(row, row + vocab) - row;
      const std::vector<int64_t> prompt(tokens.begin(), tokens.begin() + prefix);
      EXPECT_EQ(generated(*model, prompt, options), std::vector<int64_t>{expected}) << prefix;
    }
  });
}

TEST(Generate, EveryRankAndEveryMeshGetsTheSameTokens) {
  const Reference reference("llama_small");
  std::set<std::vector<int64_t>> seen;
  std::mutex mutex;
  for (const int ranks : {1, 2, 3})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
      test::run_ranks(ranks, [&](Gang& root) {
        const auto model = reference_model(root, reference, strategy);
        GenerateOptions options;
        options.new_tokens = 10;  // with the prompt one more than the model's 12 positions
        options.seed = 9;
        options.top_k = 7;
        const std::vector<int64_t> tokens = generated(*model, {3, 1, 4}, options);
        EXPECT_EQ(tokens.size(), 10u);
        const std::lock_guard lock(mutex);
        seen.insert(tokens);
      });
  EXPECT_EQ(seen.size(), 1u);
}

// It went on over the last tokens of the window, which differ where tp does not divide the positions.
TEST(Generate, MoreTokensThanPositionsAreRefusedAtTheStartOnEveryMesh) {
  const Reference reference("llama_small");
  const auto message = [](int64_t positions, int tp, size_t prompt, int64_t new_tokens) {
    std::string found;
    test::run_ranks(tp, [&](Gang& root) {
      Reference small("llama_small");
      small.config.max_positions = positions;
      MeshOptions mesh;
      mesh.tp = tp;
      const auto model = test::make_model(make_decoder(small.config),
                                          create_gangs(root.shared_from_this(), mesh), ParallelOptions{});
      GenerateOptions options;
      options.new_tokens = new_tokens;
      const std::vector<int64_t> tokens(prompt, 1);
      try {
        EXPECT_EQ(generated(*model, tokens, options).size(), static_cast<size_t>(new_tokens));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::invalid_argument);
        if (root.rank() == 0) found = error.message();
      }
    });
    return found;
  };
  EXPECT_NE(message(12, 1, 3, 11)
                .find("a prompt of 3 tokens and token_count = 11 need 3 + 10 positions, but "
                      "max_position_embeddings is 12; ask for fewer"),
            std::string::npos);
  EXPECT_EQ(message(12, 1, 3, 10), "");
  EXPECT_EQ(message(12, 1, 12, 1), "");
  EXPECT_EQ(message(12, 1, 13, 0), "");
  EXPECT_NE(message(12, 1, 13, 1).find("need 13 + 0 positions"), std::string::npos);
  EXPECT_EQ(message(12, 2, 3, 10), "");
  EXPECT_EQ(message(13, 2, 3, 10), "");
  EXPECT_NE(message(13, 2, 3, 11).find("max_position_embeddings is 13, of which tp 2 uses 12"),
            std::string::npos);
  EXPECT_NE(message(1, 2, 1, 1).find("of which tp 2 uses 0"), std::string::npos);
}

TEST(Generate, SamplesFollowTheSoftmax) {
  const Reference reference("llama_small");
  const std::vector<double> logits = reference.values("logits");
  const int64_t first = reference.ids("tokens")[0], vocab = reference.at("logits").dims[2];
  test::run_ranks(1, [&](Gang& root) {
    const auto model = reference_model(root, reference);
    const int draws = 3000;
    for (const int64_t top_k : {int64_t{0}, int64_t{4}}) {
      std::vector<double> p(logits.begin(), logits.begin() + vocab);
      std::vector<double> order = p;
      std::sort(order.rbegin(), order.rend());
      double sum = 0;
      for (double& x : p)
        sum += x = top_k != 0 && x < order[static_cast<size_t>(top_k) - 1] ? 0 : std::exp(x / 0.5);
      std::map<int64_t, int> counts;
      for (int i = 0; i < draws; ++i) {
        GenerateOptions options;
        options.new_tokens = 1;
        options.temperature = 0.5;
        options.top_k = top_k;
        options.seed = static_cast<uint64_t>(i);
        ++counts[generated(*model, {first}, options).at(0)];
      }
      for (int64_t id = 0; id < vocab; ++id) {
        const double expected = draws * p[static_cast<size_t>(id)] / sum;
        EXPECT_NEAR(counts[id], expected, 5 * std::sqrt(expected) + 1) << id << " of " << top_k;
        if (expected == 0) {
          EXPECT_EQ(counts[id], 0);
        }
      }
    }
  });
}

TEST(Generate, RefusalsAreAgreed) {
  const Reference reference("llama_small");
  test::run_ranks(2, [&](Gang& root) {
    const auto model = reference_model(root, reference);
    struct Row {
      void (*change)(std::vector<int64_t>&, GenerateOptions&);
      const char* words;
    };
    const Row table[] = {
        {[](std::vector<int64_t>& p, GenerateOptions&) { p.clear(); }, "the prompt is empty"},
        {[](std::vector<int64_t>& p, GenerateOptions&) { p[1] = 64; }, "id 64, outside [0, 64)"},
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.new_tokens = -1; }, "token_count = -1"},
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.temperature = -1; }, "temperature = -1"},
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.top_k = -3; }, "top_k = -3"},
    };
    for (const Row& row : table) {
      std::vector<int64_t> prompt = {1, 2};
      GenerateOptions options{.new_tokens = 4};
      if (root.rank() == 1) row.change(prompt, options);
      const Error error = error_of([&] { generated(*model, prompt, options); });
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_NE(error.message().find(row.words), std::string::npos) << error.message();
    }
    EXPECT_EQ(error_of([&] {
                generated(*model, {1, root.rank()}, {.new_tokens = 4});
              }).code(),
              Code::mismatch);
    GenerateOptions none;
    none.new_tokens = 0;
    EXPECT_TRUE(generated(*model, {1}, none).empty());
  });
}

TEST(Generate, ALogitThatIsNotFiniteIsRefusedOnAllAndTheGangWorksOn) {
  const Reference reference("llama_small");
  test::run_ranks(2, [&](Gang& root) {
    const auto model = reference_model(root, reference);
    Parameter& norm = *model->inspect().parameter("model.norm.weight").parameter;
    const std::vector<double> broken(static_cast<size_t>(norm.shape.count()), NAN);
    model->inspect().assign(norm, test::tensor_of(*model, DType::f64, norm.shape, broken.data()),
                            model->device().stream());
    const Error error = error_of([&] { generated(*model, {1, 2}, {.new_tokens = 4}); });
    EXPECT_EQ(error.code(), Code::invalid_state);
    EXPECT_NE(error.message().find("the logit of token 0 is not finite"), std::string::npos)
        << error.message();
    root.barrier();
  });
}

}  // namespace
}  // namespace gangway
