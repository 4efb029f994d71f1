// Every optimizer of the table over meshes: it equals one rank, and exchanges no more than it needs.
#include <algorithm>
#include <optional>

#include "base/philox.h"
#include "parallel/model/mesh_tensors.h"
#include "train/rig.h"

namespace gangway {
namespace {

struct Over {
  int ranks;
  int replicas = 1, tp = 1, pp = 1;
  Strategy strategy = Strategy::full_shard;
};

std::string describe(const Over& o) {
  return text(o.ranks, " ranks, ", o.replicas, " replicas, tp ", o.tp, ", pp ", o.pp, ", strategy ",
              static_cast<int>(o.strategy));
}

test::Rig rig_over(Gang& root, const std::string& kind, const Over& over, DType master = DType::f64,
                   std::optional<DType> moments = std::nullopt) {
  MeshOptions mesh;
  mesh.dp_replicate = over.replicas;
  mesh.tp = over.tp;
  mesh.pp = over.pp;
  test::Rig rig;
  rig.model = test::make_model(make_decoder(test::small_llama()), create_gangs(root.shared_from_this(), mesh),
                               test::parallel(over.strategy, master));
  OptimizerOptions options;
  options.lr = 0.01;
  options.weight_decay = 0.1;
  if (kind == "sgd") options.hyperparameters = {{"momentum", 0.9}};
  if (moments) options.hyperparameters = {{"moment_dtype", *moments}};
  rig.optimizer = make_optimizer(kind, rig.model->inspect().parameters(), options, rig.model->ops(),
                                 make_mesh_tensors(*rig.model));
  return rig;
}

// pattern_batch continues its pattern by 3 a row, so that the rows of all ranks are those of one.
std::vector<double> trained(Gang& root, const std::string& kind, const Over& over) {
  const test::Rig rig = rig_over(root, kind, over);
  StepOptions options;
  options.microbatches = 2;
  int index = 0, count = 1;
  rig.model->gangs().data_shard(&index, &count);
  for (int64_t step = 0; step < 4; ++step) {
    const int64_t rows = 12 / count;
    rig.step(test::pattern_batch(*rig.model, rows, 6, 5 * step + index * rows * 3), options);
  }
  return rig.parameters();
}

void expect_one_rank(const std::string& kind, const std::vector<Over>& meshes) {
  std::vector<double> alone;
  test::run_ranks(1, [&](Gang& root) { alone = trained(root, kind, {1}); });
  for (const Over& over : meshes)
    test::run_ranks(over.ranks, [&](Gang& root) {
      const std::vector<double> got = trained(root, kind, over);
      ASSERT_EQ(got.size(), alone.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], alone[i], 1e-12) << kind << ", " << describe(over) << ", element " << i;
    });
}

TEST(Optimizers, ShardedTrainingEqualsOneRankInF64) {
  for (const OptimizerKind* const kind : optimizer_kinds())
    expect_one_rank(kind->name,
                    {{2}, {3}, {4, 2}, {2, 1, 1, 1, Strategy::no_shard}, {4, 1, 1, 1, Strategy::no_shard}});
}

TEST(Optimizers, TensorParallelTrainingEqualsOneRankInF64) {
  for (const OptimizerKind* const kind : optimizer_kinds())
    if (std::string(kind->name) != "adamw8bit") expect_one_rank(kind->name, {{2, 1, 2}, {4, 1, 2}});
}

TEST(Optimizers, PipelinedTrainingEqualsOneRankInF64) {
  for (const OptimizerKind* const kind : optimizer_kinds()) expect_one_rank(kind->name, {{2, 1, 1, 2}});
}

TEST(Optimizers, AdamW8bitRefusesATensorParallelCutInsideOfABlock) {
  test::run_ranks(2, [](Gang& root) {
    const Error error = test::error_of([&] { rig_over(root, "adamw8bit", {2, 1, 2}); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find(
                  "and tp cuts its rows at 12, inside of a block of 64 elements that share a scale"),
              std::string::npos)
        << error.message();
  });
}

// Gives every rank its piece of gradients that are the same over every mesh.
void set_gradients(Model& model, int step) {
  for (const NamedParameter& named : model.inspect().parameters()) {
    Parameter& p = *named.parameter;
    if (p.shard_grad == nullptr || p.shard.count() == 0) continue;
    std::vector<float> values(static_cast<size_t>(p.shape.count()));
    const uint64_t key = philox_key(static_cast<uint64_t>(step), named.name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(philox_normal(key, i));
    const Tensor whole = test::tensor_of(model, DType::f32, p.shape, values.data());
    model.ops().cast(slice(whole, p.box()), p.shard_grad->tensor, model.device().stream());
    p.shard_grad->written = true;
  }
}

void step_alone(const test::Rig& rig, int step) {
  set_gradients(*rig.model, step);
  rig.model->run().begin_update(rig.stream());
  rig.optimizer->step(0.5, 1, rig.stream());
  rig.model->run().end_update(rig.stream(), /*copies_written=*/true);
}

TEST(Optimizers, MuonAndAdamW8bitGiveEqualBitsOnEveryMesh) {
  for (const char* const kind : {"muon", "adamw8bit"})
    for (const DType master : {DType::f32, DType::f64}) {
      const auto stepped = [&](Gang& root, const Over& over) {
        const test::Rig rig = rig_over(root, kind, over, master);
        for (int step = 0; step < 3; ++step) step_alone(rig, step);
        return rig.parameters();
      };
      std::vector<double> alone;
      test::run_ranks(1, [&](Gang& root) { alone = stepped(root, {1}); });
      std::vector<Over> meshes = {{2}, {3}, {4, 2}, {2, 2}, {3, 1, 1, 1, Strategy::no_shard}, {2, 1, 1, 2}};
      if (std::string(kind) == "muon") meshes.insert(meshes.end(), {{2, 1, 2}, {4, 1, 2}, {4, 2, 2}});
      for (const Over& over : meshes)
        test::run_ranks(over.ranks, [&](Gang& root) {
          EXPECT_EQ(stepped(root, over), alone) << kind << " " << name(master) << ", " << describe(over);
        });
    }
}

TEST(Optimizers, AveragesInBf16HaveEqualBitsOnEveryMesh) {
  for (const char* const kind : {"adamw", "lion", "muon"}) {
    const auto stepped = [&](Gang& root, const Over& over) {
      const test::Rig rig = rig_over(root, kind, over, DType::f32, DType::bf16);
      for (int step = 0; step < 3; ++step) step_alone(rig, step);
      return rig.parameters();
    };
    std::vector<double> alone;
    test::run_ranks(1, [&](Gang& root) { alone = stepped(root, {1}); });
    for (const Over& over :
         std::vector<Over>{{3}, {4, 2}, {3, 1, 1, 1, Strategy::no_shard}, {2, 1, 1, 2}, {2, 1, 2}, {4, 1, 2}})
      test::run_ranks(over.ranks, [&](Gang& root) {
        EXPECT_EQ(stepped(root, over), alone) << kind << ", " << describe(over);
      });
  }
}

// Returns how many collectives the step of an optimizer makes on all its gangs, when it has made one before.
uint64_t collectives_of_a_step(Gang& root, const std::string& kind, const Over& over) {
  const test::Rig rig = rig_over(root, kind, over);
  const Gangs& gangs = rig.model->gangs();
  const auto count = [&] {
    uint64_t calls = 0;
    std::vector<const Gang*> seen;
    for (const char* axes : {"dp_replicate+dp_shard+cp+tp", "dp_shard+cp", "tp", "dp_shard+cp+tp"}) {
      const GangPtr gang = gangs.by_axes(axes);
      if (gang->size() == 1 || std::count(seen.begin(), seen.end(), gang.get()) != 0) continue;
      seen.push_back(gang.get());
      calls += gang->traffic().calls;
    }
    return calls;
  };
  step_alone(rig, 0);
  set_gradients(*rig.model, 1);
  rig.model->run().begin_update(rig.stream());
  const uint64_t before = count();
  rig.optimizer->step(1, 1, rig.stream());
  const uint64_t after = count();
  rig.model->run().end_update(rig.stream(), true);
  return after - before;
}

uint64_t matrices(Model& model) {
  uint64_t count = 0;
  for (const NamedParameter& named : model.inspect().parameters())
    count += named.parameter->shape.rank() == 2 && !named.parameter->rows_are_ids ? 1 : 0;
  return count;
}

TEST(Optimizers, MuonMakesTwoCollectivesForAsManyMatricesAsThereAreRanks) {
  for (const int ranks : {1, 2, 3})
    test::run_ranks(ranks, [&](Gang& root) {
      const uint64_t calls = collectives_of_a_step(root, "muon", {ranks});
      const uint64_t count = matrices(*rig_over(root, "muon", {ranks}).model),
                     r = static_cast<uint64_t>(ranks);
      EXPECT_EQ(count, 14u);
      EXPECT_EQ(calls, ranks == 1 ? 0 : 2 * ((count + r - 1) / r)) << ranks;
    });
}

TEST(Optimizers, AdafactorMakesThreeSumsForAllParametersOfAStep) {
  test::run_ranks(2, [](Gang& root) { EXPECT_EQ(collectives_of_a_step(root, "adafactor", {2}), 3u); });
  test::run_ranks(2, [](Gang& root) {
    EXPECT_EQ(collectives_of_a_step(root, "adafactor", {2, 1, 1, 1, Strategy::no_shard}), 0u);
  });
}

TEST(Optimizers, ElementwiseOnesMakeNoCollectives) {
  for (const char* kind : {"adamw", "adamw8bit", "lion", "sgd"})
    test::run_ranks(2, [&](Gang& root) { EXPECT_EQ(collectives_of_a_step(root, kind, {2}), 0u) << kind; });
}

}  // namespace
}  // namespace gangway
