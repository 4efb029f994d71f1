// Save and load of parameters that are split on any dim: one file for every mesh.
#include "checkpoint/model_io.h"
#include "parallel/split_module.h"

namespace gangway::test {
namespace {

ParallelOptions options_of(uint64_t seed, Strategy strategy) {
  ParallelOptions options;
  options.seed = seed;
  options.shard.strategy = strategy;
  return options;
}

TEST(SplitModel, EveryMeshWritesTheFileOfOneDeviceAndReadsIt) {
  for (const int64_t n : {1, 5, 130}) {
    const auto whole = split_values(n, 11, DType::f32);
    for (const SplitMesh& mesh : split_meshes()) {
      const Strategy strategy = mesh.ranks % 3 == 0 ? Strategy::no_shard : Strategy::full_shard;
      SCOPED_TRACE(testing::Message() << "n " << n << ", " << mesh.ranks << " ranks, tp " << mesh.tp);
      const TemporaryFolder folder;
      run_ranks(mesh.ranks, [&](Gang& root) {
        const auto model = make_split_model(root, mesh, {n, n}, options_of(11, strategy));
        save_model(*model, folder.path(), {});
      });
      const auto stored = read_plainly(folder.path() + "/model.safetensors");
      for (const auto& [name, values] : whole)
        EXPECT_TRUE(std::equal(values.begin(), values.end(), stored.at(name).begin(), stored.at(name).end()))
            << name;
      run_ranks(mesh.ranks, [&](Gang& root) {
        const auto model = make_split_model(root, mesh, {n, n}, options_of(12, strategy));
        load_model(*model, folder.path(), {});
        for (const NamedParameter& p : model->inspect().parameters())
          EXPECT_EQ(get(model->inspect().gather(*p.parameter, model->device().stream())), whole.at(p.name))
              << p.name;
      });
    }
  }
}

}  // namespace
}  // namespace gangway::test
