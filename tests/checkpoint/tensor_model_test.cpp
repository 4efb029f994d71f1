// A model that is split over tp is saved as one device saves it, and loaded on another mesh with the same bytes.
#include "checkpoint/model_io.h"

namespace gangway::test {
namespace {

struct Mesh {
  int tp, shards;
  bool sequence;
  Strategy strategy;
};

std::unique_ptr<Model> model_on(Gang& root, const Mesh& mesh, uint64_t seed) {
  DecoderOptions config = small_llama();
  config.vocab = 19;  // which no tp divides
  config.heads = config.kv_heads = 12;
  config.ffn = 24;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  MeshOptions degrees;
  degrees.tp = mesh.tp;
  ParallelOptions options = seeded(seed, DType::f32, mesh.strategy);
  options.tensor.family.sequence_parallel = mesh.sequence;
  return make_model(make_decoder(config), create_gangs(root.shared_from_this(), degrees), options);
}

TEST(TensorModel, EveryMeshSavesTheSameBytesAndLoadsThem) {
  const Mesh meshes[] = {{1, 1, false, Strategy::full_shard}, {2, 1, false, Strategy::full_shard},
                         {2, 2, true, Strategy::full_shard},  {3, 1, false, Strategy::full_shard},
                         {4, 1, true, Strategy::no_shard},    {4, 2, false, Strategy::shard_grad_op}};
  const TemporaryFolder first;
  std::string bytes;
  for (const Mesh& mesh : meshes) {
    SCOPED_TRACE(testing::Message() << "tp " << mesh.tp << ", dp_shard " << mesh.shards);
    const TemporaryFolder folder;
    run_ranks(mesh.tp * mesh.shards, [&](Gang& root) {
      save_model(*model_on(root, mesh, 11), mesh.tp == 1 ? first.path() : folder.path(), {});
      const auto loaded = model_on(root, mesh, 12);
      if (mesh.tp > 1) load_model(*loaded, first.path(), {});
      if (mesh.tp > 1) save_model(*loaded, folder.path() + "/again", {});
    });
    if (mesh.tp == 1) {
      bytes = read_all(first.path() + "/model.safetensors");
      continue;
    }
    EXPECT_EQ(read_all(folder.path() + "/model.safetensors"), bytes)
        << "first values are those of one device";
    EXPECT_EQ(read_all(folder.path() + "/again/model.safetensors"), bytes) << "what was loaded is saved";
  }
}

}  // namespace
}  // namespace gangway::test
