// What gw-plan model says, beside runs that count their bytes.
#include "plan/model_plan.h"

#include <algorithm>

#include "nn/small_llama.h"
#include "train/train_testing.h"

namespace gangway {
namespace {

// All but temporaries, which hold what is under way between stages: that depends on when a peer takes it.
std::vector<uint64_t> fields(const MemoryUse& m) {
  return {m.master,         m.copies,    m.region_rows, m.gradient_shards, m.gathered,
          m.full_gradients, m.optimizer, m.activations, m.gradients};
}

// Of all microbatches' outputs and gradients, if none was taken.
uint64_t under_way(const ModelPlanRequest& request) {
  const auto bytes =
      static_cast<uint64_t>(request.rows * request.sequence * request.decoder.dim) * sizeof(float);
  return request.degrees.pp > 1 ? 2 * static_cast<uint64_t>(request.microbatches) * bytes : 0;
}

ModelPlanRequest request_of(const MeshOptions& degrees, bool one_host) {
  ModelPlanRequest request;
  request.decoder = test::small_llama();
  request.decoder.layers = 4;
  request.decoder.vocab = 33;  // which tp 2 does not divide
  request.decoder.max_positions = 16;
  request.ranks = degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.tp;
  request.degrees = degrees;
  request.rows = 2;
  request.sequence = 8;
  request.microbatches = 2;
  request.one_host = one_host;
  return request;
}

TEST(ModelPlan, IsWhatARunTakesOnEveryMesh) {
  for (const MeshOptions& degrees : {MeshOptions{1, 1, 2, 1, 1},
                                     {1, 2, 1, 1, 1},
                                     {1, 1, 1, 1, 2},
                                     {1, 1, 1, 2, 1},
                                     {2, 1, 1, 1, 1},
                                     {1, 1, 2, 1, 2},
                                     {2, 1, 2, 1, 1},
                                     {2, 1, 1, 1, 2},
                                     {4, 1, 1, 1, 1}})  // stages in the middle have no ids and no loss
    for (const DType param : {DType{}, DType::bf16})
      for (const bool one_host : {true, false}) {
        ModelPlanRequest request = request_of(degrees, one_host);
        request.options.shard.param_dtype = param;
        const std::vector<MeshPlan> plans = plan_meshes(request);
        ASSERT_EQ(plans.size(), 1u);
        ASSERT_EQ(plans[0].refusal, "");
        std::vector<MemoryUse> use(static_cast<size_t>(request.ranks));
        test::run_ranks(request.ranks, [&](Gang& root) {
          const MemoryUse run =
              use_of_training(root.shared_from_this(), request, degrees, request.microbatches);
          MemoryUse& planned = use[static_cast<size_t>(root.rank())];
          planned = planned_use(request, degrees, request.microbatches, root.rank());
          EXPECT_EQ(fields(run), fields(planned)) << describe(degrees) << ", rank " << root.rank();
          EXPECT_GE(run.temporaries, planned.temporaries) << describe(degrees) << ", rank " << root.rank();
          EXPECT_LE(run.temporaries, planned.temporaries + under_way(request)) << describe(degrees);
        });
        uint64_t most = 0;
        for (const MemoryUse& m : use) most = std::max(most, m.total());
        EXPECT_EQ(plans[0].use.total(), most) << describe(degrees);
      }
}

TEST(ModelPlan, TriesEveryMeshOnceAndRefusesWithNumbers) {
  ModelPlanRequest request = request_of({1, 1, 8, 1, 1}, false);
  request.degrees = {0, 0, 0, 0, 0};
  request.sequence = 16;
  request.microbatches = 0;
  const std::vector<MeshPlan> plans = plan_meshes(request);
  EXPECT_EQ(plans.size(), 35u);  // 8 = 2 x 2 x 2 over five axes
  uint64_t before = 0;
  bool refused = false;
  for (const MeshPlan& plan : plans) {
    const MeshOptions& m = plan.degrees;
    EXPECT_EQ(m.pp * m.dp_replicate * m.dp_shard * m.cp * m.tp, 8);
    EXPECT_EQ(plan.microbatches, m.pp > 1 ? 2 * m.pp : 1);
    if (!plan.refusal.empty()) {
      refused = true;
      continue;
    }
    EXPECT_FALSE(refused) << "refused meshes come last";
    EXPECT_GE(plan.use.total(), before);
    before = plan.use.total();
  }
  const auto tp =
      std::find_if(plans.begin(), plans.end(), [](const MeshPlan& p) { return p.degrees.tp == 8; });
  EXPECT_NE(tp->refusal.find("4 heads, which tp 8 does not divide"), std::string::npos) << tp->refusal;
  request.degrees.tp = 3;
  const Error error = test::error_of([&] { plan_meshes(request); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("no mesh of 8 ranks"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace gangway
