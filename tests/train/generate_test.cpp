// Text generation by a sharded model gives the same tokens on every rank and every mesh.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "nn/attention.h"
#include "train/sampling.h"
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
  EXPECT_EQ(message(13, 2, 3, 11), "");
  EXPECT_NE(message(13, 2, 3, 12).find("max_position_embeddings is 13"), std::string::npos);
  EXPECT_NE(message(1, 2, 1, 1).find("max_position_embeddings is 1, and tp 2 reads 2 tokens at a time"),
            std::string::npos);
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
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.top_p = 0; }, "top_p = 0"},
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.min_p = 1.5; }, "min_p = 1.5"},
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.repetition_penalty = 0; },
         "repetition_penalty = 0"},
        {[](std::vector<int64_t>&, GenerateOptions& o) { o.stop_tokens = {64}; }, "stop token 64 is outside"},
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

// --- the cache of keys and values

// The logits [tokens, vocab] of one row, without a cache.
std::vector<double> logits_of(Model& model, const std::vector<int64_t>& row) {
  const StackScope scope(model.temporaries());
  Context ctx = model.run().context(model.device().stream());
  const Tensor tokens =
      test::tensor_of(model, DType::i64, Shape{1, static_cast<int64_t>(row.size())}, row.data());
  const Tensor logits = model.run().forward(ctx, std::span(&tokens, 1), nullptr).at(0);
  const test::HostMemory host(logits);
  return {host.data<double>(), host.data<double>() + logits.count()};
}

// The most likely tokens, each from a forward of all tokens before it.
std::vector<int64_t> greedy_without_cache(Model& model, std::vector<int64_t> tokens, int64_t count) {
  std::vector<int64_t> made;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<double> logits = logits_of(model, tokens);
    const auto vocab = static_cast<ptrdiff_t>(logits.size() / tokens.size());
    const auto row = logits.end() - vocab;
    made.push_back(std::max_element(row, logits.end()) - row);
    tokens.push_back(made.back());
  }
  return made;
}

void use_longrope(DecoderOptions& config, int64_t original_positions) {
  const auto pairs = static_cast<size_t>(checked_head_dim(config) / 2);
  config.rope.scaling = RopeScaling::longrope;
  config.rope.factor = 4;
  config.rope.original_positions = original_positions;
  config.rope.short_factors.assign(pairs, 1);
  config.rope.long_factors.assign(pairs, 9);
}

// The number of tokens that are asked for changes nothing, nor do the other rows.
TEST(Generate, LongropeTakesTheFactorsOfWhatEachRowHasSoFar) {
  Reference reference("llama_parity");
  use_longrope(reference.config, 8);
  test::run_ranks(1, [&](Gang& root) {
    const auto model = reference_model(root, reference);
    const TokenRows prompts = {{3, 1, 4}, {2, 7, 1, 8, 2, 8, 1, 8, 2, 8}, {5, 9, 2, 6, 5, 3, 5}};
    TokenRows wanted;
    for (const auto& prompt : prompts) wanted.push_back(greedy_without_cache(*model, prompt, 9));
    GenerateOptions options;
    options.temperature = 0;
    for (const int64_t count : {5, 9}) {
      options.new_tokens = count;
      const TokenRows together = generate(*model, prompts, options, model->device().stream());
      for (size_t row = 0; row < prompts.size(); ++row) {
        std::vector<int64_t> first = wanted[row];
        first.resize(static_cast<size_t>(count));
        EXPECT_EQ(together[row], first) << row;
        EXPECT_EQ(generated(*model, prompts[row], options), first) << row << " alone";
      }
    }
  });
}

struct GenerateMesh {
  const char* name;
  MeshOptions mesh;
  bool sequence_parallel = false;
  ContextMethod method = ContextMethod::ring;
  const char* schedule = "1f1b";
};

TEST(Generate, PromptsOfDifferentLengthsGiveOnEveryMeshTheTokensOfEachWithoutACache) {
  const Reference reference("llama_parity");
  const TokenRows prompts = {{3, 1, 4, 1, 5, 9, 2}, {6}, {5, 3, 5}};
  GenerateOptions options;
  options.new_tokens = 9;
  options.temperature = 0;
  // With a window, the rows get long for longrope one after the other.
  for (const int64_t window : {0, 5}) {
    Reference windowed("llama_parity");
    windowed.config.window = window;
    if (window != 0) use_longrope(windowed.config, 8);
    TokenRows want;
    test::run_ranks(1, [&](Gang& root) {
      const auto model = reference_model(root, windowed);
      for (const auto& prompt : prompts) want.push_back(greedy_without_cache(*model, prompt, 9));
    });
    for (const GenerateMesh& c :
         {GenerateMesh{"one rank", {}}, GenerateMesh{"tp 2", {.tp = 2}},
          GenerateMesh{"tp 2, sequence parallel", {.tp = 2}, true}, GenerateMesh{"pp 2", {.pp = 2}},
          GenerateMesh{"pp 2, interleaved", {.pp = 2}, false, ContextMethod::ring, "interleaved-1f1b"},
          GenerateMesh{"cp 2, ring", {.cp = 2}},
          GenerateMesh{"cp 2, all-gather", {.cp = 2}, false, ContextMethod::all_gather},
          GenerateMesh{"cp 2, all-to-all", {.cp = 2}, false, ContextMethod::all_to_all},
          GenerateMesh{"pp 2, tp 2, sequence parallel, dp 2", {.pp = 2, .dp_shard = 2, .tp = 2}, true}}) {
      int ranks = 1;
      for (const int degree : {c.mesh.tp, c.mesh.cp, c.mesh.pp, c.mesh.dp_shard})
        ranks *= std::max(1, degree);
      test::run_ranks(ranks, [&](Gang& root) {
        ParallelOptions parallel = test::parallel(Strategy::full_shard);
        parallel.tensor.family.sequence_parallel = c.sequence_parallel;
        parallel.context = c.method;
        parallel.pipeline.schedule = c.schedule;
        const auto model = test::make_model(make_decoder(windowed.config),
                                            create_gangs(root.shared_from_this(), c.mesh), parallel);
        test::assign_initial(*model, windowed);
        EXPECT_EQ(generate(*model, prompts, options, model->device().stream()), want)
            << c.name << ", window " << window;
      });
    }
  }
}

TEST(Generate, ARowEndsWithAStopTokenAndAFunctionOfOneRankEndsAllRanks) {
  const Reference reference("llama_small");
  test::run_ranks(2, [&](Gang& root) {
    const auto model = reference_model(root, reference);
    GenerateOptions options;
    options.new_tokens = 8;
    options.temperature = 0;
    const TokenRows prompts = {{1, 2, 3}, {4}};
    const TokenRows whole = generate(*model, prompts, options, model->device().stream());
    options.stop_tokens = {whole[0][2]};
    const TokenRows stopped = generate(*model, prompts, options, model->device().stream());
    for (size_t row = 0; row < 2; ++row) {
      const auto end = std::find(whole[row].begin(), whole[row].end(), whole[0][2]);
      const auto length = std::min<ptrdiff_t>(end - whole[row].begin() + 1, 8);
      EXPECT_EQ(stopped[row], std::vector<int64_t>(whole[row].begin(), whole[row].begin() + length));
    }
    options.stop_tokens.clear();
    TokenRows seen(2);
    if (root.rank() == 1)
      options.on_token = [&](size_t row, int64_t token) {
        seen[row].push_back(token);
        return seen[1].size() < 3;
      };
    const TokenRows some = generate(*model, prompts, options, model->device().stream());
    for (size_t row = 0; row < 2; ++row)
      EXPECT_EQ(some[row], std::vector<int64_t>(whole[row].begin(), whole[row].begin() + 3));
    if (root.rank() == 1) {
      EXPECT_EQ(seen, some);
    }
  });
}

// --- how a token is drawn

TEST(Sampling, TopPKeepsTheFewestTokensWhoseProbabilitiesReachIt) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.4), std::log(0.3), std::log(0.2)};
  const auto drawn = [&](double top_p, double uniform) {
    GenerateOptions options;
    options.top_p = top_p;
    return sample(logits, {}, options, uniform);
  };
  EXPECT_EQ(drawn(0.3, 0.999), 1);
  EXPECT_EQ(drawn(0.6, 0.5), 1);  // of 0.4 and 0.3, the first has 4/7
  EXPECT_EQ(drawn(0.6, 0.58), 2);
  EXPECT_EQ(drawn(0.8, 0.999), 3);  // 0.4, 0.3 and 0.2
  EXPECT_EQ(drawn(1, 0.999), 0);
}

TEST(Sampling, MinPLeavesOutWhatIsFarLessLikelyThanTheLikeliest) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.5), std::log(0.3), std::log(0.1)};
  GenerateOptions options;
  options.min_p = 0.5;
  EXPECT_EQ(sample(logits, {}, options, 0.999), 2);
  options.min_p = 0.7;
  EXPECT_EQ(sample(logits, {}, options, 0.999), 1);
  options.min_p = 0.1;
  EXPECT_EQ(sample(logits, {}, options, 0.999), 3);
}

TEST(Sampling, ARepetitionPenaltyMakesEarlierTokensLessLikelyOnce) {
  GenerateOptions options;
  options.temperature = 0;
  options.repetition_penalty = 2;
  const std::vector<int64_t> earlier = {1, 1};
  EXPECT_EQ(sample(std::vector<double>{1.5, 2, 0}, earlier, options, 0), 0);
  EXPECT_EQ(sample(std::vector<double>{0.9, 2, 0}, earlier, options, 0), 1);
  EXPECT_EQ(sample(std::vector<double>{-1.5, -1, -3}, earlier, options, 0), 0);
  EXPECT_EQ(sample(std::vector<double>{-1.5, NAN, -3}, earlier, options, 0), -2);
}

}  // namespace
}  // namespace gangway
