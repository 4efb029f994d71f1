// The Llama of the reference files over every mesh of threads: loss, norm and every gradient of step 0.
#include "parallel/parallel_testing.h"

namespace gangway::test {
namespace {

const Reference& untied() {
  static const Reference reference("llama_parity");
  return reference;
}
const Reference& tied() {
  static const Reference reference("llama_parity_tied");
  return reference;
}

struct Case {
  int ranks, replicas;
  Strategy strategy;
};

std::string label(const testing::TestParamInfo<Case>& info) {
  const char* names[] = {"FullShard", "ShardGradOp", "NoShard"};
  return text(names[static_cast<int>(info.param.strategy)], info.param.ranks, "Replicas",
              info.param.replicas);
}

class LlamaParity : public testing::TestWithParam<Case> {
 protected:
  static void expect_parity(const Reference& reference, DType master, double tolerance) {
    const Case& c = GetParam();
    run_ranks(c.ranks, [&](Gang& root) {
      ParallelOptions options;
      options.shard.strategy = c.strategy;
      options.master_dtype = master;
      const auto model = make_model(reference, mesh_of(root, c.replicas), options);
      expect_reference(run_step(*model, reference), reference, tolerance);
    });
  }
};

TEST_P(LlamaParity, F64) { expect_parity(untied(), DType::f64, 1e-10); }
TEST_P(LlamaParity, F32) { expect_parity(untied(), DType::f32, 1e-5); }
TEST_P(LlamaParity, TiedF64) { expect_parity(tied(), DType::f64, 1e-10); }
TEST_P(LlamaParity, TiedF32) { expect_parity(tied(), DType::f32, 1e-5); }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::no_shard})
      all.push_back({ranks, 1, strategy});
  all.push_back({4, 2, Strategy::full_shard});
  all.push_back({4, 2, Strategy::shard_grad_op});
  all.push_back({4, 2, Strategy::no_shard});
  all.push_back({3, 3, Strategy::full_shard});  // replicas of unsharded parameters
  return all;
}
INSTANTIATE_TEST_SUITE_P(Meshes, LlamaParity, testing::ValuesIn(cases()), label);

}  // namespace
}  // namespace gangway::test
