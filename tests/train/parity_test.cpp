// Five AdamW steps equal the reference files for every number of ranks and every strategy.
#include "train/five_steps.h"

namespace gangway {
namespace {

using test::Reference;

struct Case {
  int ranks;
  test::FiveSteps steps;
};

void expect_five_steps(const Reference& reference, const Case& c, DType master) {
  test::run_ranks(c.ranks, [&](Gang& root) { test::expect_five_steps(root, reference, c.steps, master); });
}

// Every number of ranks with every strategy, and hybrid meshes. The cases have one and three microbatches in
// turn.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](int ranks, int replicas) {
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      cases.push_back({ranks, {replicas, strategy, cases.size() % 2 == 0 ? 1 : 3}});
  };
  for (const int ranks : {1, 2, 3, 4, 8}) add(ranks, 1);
  add(4, 2);
  cases.push_back({2, {2, Strategy::full_shard, 1}});  // replicas of unsharded parameters
  return cases;
}
const std::vector<Case> kCases = all_cases();

TEST(Parity, FiveStepsInF64EqualTheReference) {
  const Reference reference("llama_parity");
  for (const Case& c : kCases) expect_five_steps(reference, c, DType::f64);
}

TEST(Parity, FiveStepsInF32EqualTheReference) {
  const Reference reference("llama_parity");
  for (const Case& c : kCases) expect_five_steps(reference, c, DType::f32);
}

TEST(Parity, TiedEmbeddingsAreOneParameter) {
  const Reference reference("llama_parity_tied");
  for (const Case& c :
       std::vector<Case>{{1, {1, Strategy::full_shard, 1}}, {4, {2, Strategy::full_shard, 3}}})
    expect_five_steps(reference, c, DType::f64);
}

// A batch of three rows over four ranks leaves the last rank without rows. It trains with zero rows of weight
// 0.
TEST(Parity, ARankWithoutRowsTakesPart) {
  for (const char* name : {"llama_small", "llama_small_bias_tied"}) {
    const Reference reference(name);
    for (const Case& c : std::vector<Case>{{1, {1, Strategy::full_shard, 1}},
                                           {4, {1, Strategy::full_shard, 1}},
                                           {4, {1, Strategy::no_shard, 2}}})
      expect_five_steps(reference, c, DType::f64);
  }
}

}  // namespace
}  // namespace gangway
