// How a chain is split into stages, and what a cut does to the parameters of the model.
#include "parallel/pipeline/stage.h"

#include "base/error_of.h"
#include "nn/small_llama.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

struct Cut {
  StageSplit split;
  int layers, stages;
  std::vector<int64_t> first_layers;
  std::vector<Stage> want;  // child 0 is the embedding, the last child is the head
};

ModulePtr llama_of(int64_t layers, bool tied = false) {
  DecoderOptions config = small_llama(tied);
  config.layers = layers;
  ModulePtr model = make_decoder(config);
  assign_full_names(*model);
  return model;
}

PipelineOptions options_of(const Cut& c) {
  PipelineOptions options;
  options.split = c.split;
  options.first_layers = c.first_layers;
  return options;
}

TEST(Stages, LayersAreSharedOutAsAsked) {
  for (const Cut& c : std::vector<Cut>{
           {StageSplit::even, 8, 4, {}, {{0, 3}, {3, 5}, {5, 7}, {7, 10}}},
           {StageSplit::even, 5, 3, {}, {{0, 3}, {3, 5}, {5, 7}}},
           {StageSplit::even, 1, 1, {}, {{0, 3}}},
           {StageSplit::given, 4, 2, {0, 1}, {{0, 2}, {2, 6}}},
           // embedding and head have stages of their own
           {StageSplit::given, 2, 4, {0, 0, 1, 2}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}},
           {StageSplit::by_cost, 1, 3, {}, {{0, 1}, {1, 2}, {2, 3}}},
       }) {
    const ModulePtr model = llama_of(c.layers);
    EXPECT_EQ(split_stages(dynamic_cast<Chain&>(*model), c.stages, options_of(c)), c.want)
        << c.layers << " layers, " << c.stages << " stages";
  }
}

// Compares the largest stage with the smallest one that any split has, by trying all splits.
TEST(Stages, ByCostTheLargestIsAsSmallAsPossible) {
  const std::vector<int64_t> widths = {40, 3, 3, 90, 5, 5, 30, 2};
  for (int stages = 1; stages <= 8; ++stages) {
    std::vector<ModulePtr> modules;
    for (size_t i = 0; i < widths.size(); ++i) modules.push_back(make_linear(1, widths[i], false));
    const ModulePtr chain = make_sequential(modules);
    PipelineOptions options;
    options.split = StageSplit::by_cost;
    const auto largest = [&](const std::vector<Stage>& cut) {
      int64_t most = 0;
      for (const Stage& s : cut) {
        int64_t sum = 0;
        for (size_t i = s.first; i < s.end; ++i) sum += widths[i];
        most = std::max(most, sum);
      }
      return most;
    };
    int64_t best = INT64_MAX;
    for (unsigned mask = 0; mask < 1u << 7; ++mask) {  // one bit for each place to cut at
      if (__builtin_popcount(mask) + 1 != stages) continue;
      std::vector<Stage> cut{{0, 8}};
      for (size_t i = 1; i < 8; ++i)
        if (mask >> (i - 1) & 1) {
          cut.back().end = i;
          cut.push_back({i, 8});
        }
      best = std::min(best, largest(cut));
    }
    const std::vector<Stage> cut = split_stages(dynamic_cast<Chain&>(*chain), stages, options);
    EXPECT_EQ(cut.size(), static_cast<size_t>(stages));
    EXPECT_EQ(largest(cut), best) << stages;
  }
}

TEST(Stages, WhatDoesNotFitIsRefusedWithItsNumbers) {
  struct Wrong {
    Cut cut;
    const char* words;
  };
  for (const Wrong& w :
       std::vector<Wrong>{{{StageSplit::even, 2, 5, {}, {}}, "would have no module"},
                          {{StageSplit::by_cost, 2, 5, {}, {}}, "4 modules in a row cannot be 5 stages"},
                          {{StageSplit::given, 4, 2, {0}, {}}, "1 entries for 2 stages"},
                          {{StageSplit::given, 4, 2, {1, 2}, {}}, "first_layers[0] is 1"},
                          {{StageSplit::given, 4, 3, {0, 3, 2}, {}}, "first_layers[2] is 2"},
                          {{StageSplit::given, 4, 2, {0, 5}, {}}, "first_layers[1] is 5"}}) {
    const ModulePtr model = llama_of(w.cut.layers);
    const Error error =
        error_of([&] { split_stages(dynamic_cast<Chain&>(*model), w.cut.stages, options_of(w.cut)); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find(w.words), std::string::npos) << error.message();
  }
}

TEST(Stages, ACutKeepsNamesAndIsUndoneWhole) {
  const ModulePtr model = llama_of(4, /*tied=*/true);
  auto& chain = dynamic_cast<Chain&>(*model);
  const std::vector<NamedParameter> before = named_parameters_with_aliases(*model);
  for (const int rank : {0, 1, 2}) {
    GangOptions place;
    place.rank = rank;
    place.size = 3;
    place.engine = "fake";
    const GangsPtr gangs = create_gangs(Gang::create(place), {.pp = 3});
    StageCut cut(chain, split_stages(chain, 3, {}), {0, 1, 2}, *gangs);
    EXPECT_EQ(cut.parameters().size(), before.size() - 1);
    EXPECT_EQ(cut.aliases().size(), 1u);
    for (const NamedParameter& p : named_parameters(*model))
      EXPECT_EQ(p.parameter->full_name, p.name == "lm_head.weight" ? "model.embed_tokens.weight" : p.name);
    ASSERT_EQ(cut.tied().size(), 1u);
    EXPECT_EQ(cut.tied()[0].ranks, (std::vector<int>{0, 2}));
    EXPECT_EQ(cut.tied()[0].copy != nullptr, rank == 2);
    EXPECT_EQ(model->id_rules().size(), 2u) << "ids are looked at on all ranks";
    cut.undo();
    const std::vector<NamedParameter> after = named_parameters_with_aliases(*model);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i].parameter, before[i].parameter) << after[i].name;
      EXPECT_TRUE(after[i].parameter->layout.empty());
    }
  }
}

}  // namespace
}  // namespace gangway::test
