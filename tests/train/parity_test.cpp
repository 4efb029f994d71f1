// Five AdamW steps against the reference files, whatever the ranks and the strategy.
#include "train/train_testing.h"

namespace gangway {
namespace {

using test::Reference;

struct Case {
  int ranks, replicas;
  Strategy strategy;
  int microbatches;
};

std::string describe(const Case& c) {
  return text(c.ranks, " ranks, ", c.replicas, " replicas, strategy ", static_cast<int>(c.strategy), ", ",
              c.microbatches, " microbatches");
}

void expect_five_steps(const Reference& reference, const Case& c, DType master) {
  const bool wide = master == DType::f64;
  const double tolerance = wide ? 1e-10 : 1e-5, final_tolerance = wide ? 1e-10 : 2e-4;
  const double later_norms = wide ? 1e-10 : 5e-5;  // of parameters that are off already; 2.4e-5 was seen
  const std::vector<double> losses = reference.values("adamw.losses"),
                            norms = reference.values("adamw.grad_norms");
  test::run_ranks(c.ranks, [&](Gang& root) {
    const auto model = test::make_model(make_llama(reference.config), test::make_gangs(root, c.replicas),
                                        test::parallel(c.strategy, master));
    test::assign_initial(*model, reference);
    const auto optimizer = make_adamw(model->parameters(), test::optimizer_of(reference), model->ops());
    StepOptions options;
    options.max_grad_norm = reference.settings.at("max_grad_norm");
    options.microbatches = c.microbatches;
    for (int64_t step = 0; step < 5; ++step) {
      const auto at = static_cast<size_t>(step);
      const StepResult result = train_step(*model, optimizer.get(), test::own_rows(*model, reference, step),
                                           options, model->device().stream());
      EXPECT_NEAR(result.loss / losses[at], 1, tolerance) << describe(c) << ", step " << step;
      EXPECT_NEAR(result.grad_norm / norms[at], 1, step == 0 ? tolerance : later_norms)
          << describe(c) << ", step " << step;
      EXPECT_EQ(result.step, step + 1);
      EXPECT_EQ(result.skipped, Skip::none);
    }
    for (const NamedParameter& named : model->parameters())
      EXPECT_LT(
          test::distance(test::gathered(*model, *named.parameter), reference.values("final." + named.name)),
          final_tolerance)
          << describe(c) << ", " << named.name;
  });
}

// Every size with every strategy, hybrid meshes besides; one and three microbatches in turn.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](int ranks, int replicas) {
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      cases.push_back({ranks, replicas, strategy, cases.size() % 2 == 0 ? 1 : 3});
  };
  for (const int ranks : {1, 2, 3, 4, 8}) add(ranks, 1);
  add(4, 2);
  cases.push_back({2, 2, Strategy::full_shard, 1});  // replicas of whole parameters
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
  for (const Case& c : std::vector<Case>{{1, 1, Strategy::full_shard, 1}, {4, 2, Strategy::full_shard, 3}})
    expect_five_steps(reference, c, DType::f64);
}

// Three rows over four ranks: the last one has none, and gives zero rows of weight 0.
TEST(Parity, ARankWithoutRowsTakesPart) {
  for (const char* name : {"llama_small", "llama_small_bias_tied"}) {
    const Reference reference(name);
    for (const Case& c : std::vector<Case>{
             {1, 1, Strategy::full_shard, 1}, {4, 1, Strategy::full_shard, 1}, {4, 1, Strategy::no_shard, 2}})
      expect_five_steps(reference, c, DType::f64);
  }
}

}  // namespace
}  // namespace gangway
